//! Persistence of a NATS instance, checked over the wire.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result};
use idem_services::{Instance, Nats};

#[test]
fn nats_keeps_a_message_of_more_than_a_mebibyte_over_a_stop_and_a_kill() -> Result<()> {
    let mut server = Nats::start()?;
    let stream = br#"{"name":"KEPT","subjects":["kept"],"storage":"file"}"#;
    let made = ask(&server, "$JS.API.STREAM.CREATE.KEPT", stream)?;
    assert!(made.contains(r#""name":"KEPT""#), "{made}");
    let stored = ask(&server, "kept", &vec![b'x'; (1 << 20) + 1])?;
    assert!(stored.contains(r#""seq":1"#), "{stored}");
    server.stop()?;
    server.start_again()?;
    assert_eq!(messages(&server)?, Some(1));
    server.kill()?;
    server.start_again()?;
    assert_eq!(messages(&server)?, Some(1));
    Ok(())
}

/// Returns the number of messages in the stream.
fn messages(server: &Instance) -> Result<Option<u64>> {
    let info: serde_json::Value = serde_json::from_str(&ask(server, "$JS.API.STREAM.INFO.KEPT", b"")?)?;
    Ok(info["state"]["messages"].as_u64())
}

/// Returns the response to a request, in the text protocol of NATS (docs.nats.io, "Client Protocol").
fn ask(server: &Instance, subject: &str, request: &[u8]) -> Result<String> {
    let mut stream = TcpStream::connect(server.url().trim_start_matches("nats://"))?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "CONNECT {{\"verbose\":false}}\r\nSUB answer 1\r\nPUB {subject} answer {}\r\n", request.len())?;
    stream.write_all(request)?;
    stream.write_all(b"\r\n")?;
    let mut lines = BufReader::new(stream).lines();
    while let Some(line) = lines.next().transpose()? {
        anyhow::ensure!(!line.starts_with("-ERR"), "NATS answers {line}");
        if line.starts_with("MSG ") {
            return lines.next().context("a message without a body")?.context("cannot read");
        }
    }
    anyhow::bail!("NATS closed the connection")
}
