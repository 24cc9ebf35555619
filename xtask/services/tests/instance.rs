//! Private instances of tests.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use idem_services::{Instance, Kafka, Moto, Nats, Postgres, RabbitMq, Sqs};

#[test]
fn postgres_comes_back_on_its_address_after_stop_kill_and_pause() -> Result<()> {
    // PostgreSQL answers the request for TLS with one letter (manual, section 54.2.11).
    comes_back(Postgres::start()?, &[0, 0, 0, 8, 4, 210, 22, 47])
}

#[test]
fn rabbitmq_comes_back_on_its_address_after_stop_kill_and_pause() -> Result<()> {
    comes_back(RabbitMq::start()?, b"AMQP\x00\x00\x09\x01")
}

#[test]
fn nats_comes_back_on_its_address_after_stop_kill_and_pause() -> Result<()> {
    comes_back(Nats::start()?, b"PING\r\n")
}

#[test]
fn kafka_comes_back_on_its_address_after_stop_kill_and_pause() -> Result<()> {
    // A request for the supported versions (kafka.apache.org/protocol, ApiVersions v0, no client id).
    comes_back(Kafka::start()?, &[0, 0, 0, 10, 0, 18, 0, 0, 0, 0, 0, 1, 255, 255])
}

#[test]
fn sqs_comes_back_on_its_address_after_stop_kill_and_pause() -> Result<()> {
    comes_back(Sqs::start()?, b"GET / HTTP/1.0\r\n\r\n")
}

#[test]
fn moto_comes_back_on_its_address_after_stop_kill_and_pause() -> Result<()> {
    comes_back(Moto::start()?, b"GET / HTTP/1.0\r\n\r\n")
}

#[test]
fn an_instance_ends_with_the_process_that_was_killed() -> Result<()> {
    let name = "holds_an_instance_until_it_is_killed";
    let mut holder = Command::new(std::env::current_exe()?);
    holder.args([name, "--exact", "--nocapture"]).env("IDEM_SERVICES_HOLD", "1");
    let mut holder = holder.stdout(std::process::Stdio::piped()).spawn()?;
    let mut said = String::new();
    let mut out = std::io::BufReader::new(holder.stdout.take().expect("a pipe"));
    let pid = loop {
        said.clear();
        anyhow::ensure!(std::io::BufRead::read_line(&mut out, &mut said)? > 0, "the holder ended");
        if let Some((_, pid)) = said.split_once("holding ") {
            break pid.trim().to_owned();
        }
    };
    holder.kill()?;
    holder.wait()?;
    for _ in 0..300 {
        if !Path::new("/proc").join(&pid).exists() {
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    anyhow::bail!("process {pid} still runs half a minute after the process that had started it was killed")
}

/// Not a separate test: the process that the test above kills.
#[test]
fn holds_an_instance_until_it_is_killed() -> Result<()> {
    if std::env::var_os("IDEM_SERVICES_HOLD").is_some() {
        let mut server = Postgres::start()?;
        server.pause()?;
        println!("holding {}", server.pid().unwrap_or_default());
        loop {
            std::thread::park();
        }
    }
    Ok(())
}

fn comes_back(mut server: Instance, hello: &[u8]) -> Result<()> {
    assert!(answers(&server, hello, PATIENCE));
    server.stop()?;
    assert!(!answers(&server, hello, AT_ONCE), "it still answers after a stop");
    server.start_again()?;
    assert!(answers(&server, hello, PATIENCE));
    server.kill()?;
    assert!(!answers(&server, hello, AT_ONCE), "it still answers after a kill");
    server.start_again()?;
    assert!(answers(&server, hello, PATIENCE));
    server.pause()?;
    assert!(!answers(&server, hello, AT_ONCE), "it answers while it is paused");
    server.resume()?;
    assert!(answers(&server, hello, PATIENCE), "it does not answer after a pause");
    Ok(())
}

/// Long enough for a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);
/// A server that responds does so within this time; the test waits no longer for one that does not.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Returns whether the server responds with anything within this time.
fn answers(server: &Instance, hello: &[u8], limit: Duration) -> bool {
    let url = server.url();
    let host = url.split_once("://").map_or(url, |(_, rest)| rest);
    let host = host.rsplit_once('@').map_or(host, |(_, rest)| rest);
    let address = host.split('/').next().unwrap_or_default();
    let answer = TcpStream::connect(address).and_then(|mut stream| {
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(hello)?;
        stream.read(&mut [0; 1])
    });
    matches!(answer, Ok(1))
}
