//! Persistence of an Apache Kafka instance, checked over the wire (kafka.apache.org/protocol).

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::Result;
use idem_services::{Instance, Kafka};

#[test]
fn kafka_keeps_a_topic_over_a_stop_and_a_kill() -> Result<()> {
    let mut server = Kafka::start()?;
    assert!(!has_topic(&server)?);
    create_topic(&server)?;
    assert!(has_topic(&server)?);
    server.stop()?;
    server.start_again()?;
    assert!(has_topic(&server)?);
    server.kill()?;
    server.start_again()?;
    assert!(has_topic(&server)?);
    Ok(())
}

const TOPIC: &[u8] = b"\x00\x04kept";

/// CreateTopics v2: one topic with one partition, one replica, no assignments, no settings; 20 s; not validate-only.
fn create_topic(server: &Instance) -> Result<()> {
    let request = [&[0, 0, 0, 1], TOPIC, &[0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0], &20_000_i32.to_be_bytes(), &[0]];
    let answer = ask(server, 19, 2, &request.concat())?;
    // A throttle time, one topic, its name, no error.
    assert_eq!(answer[4..16], [&[0, 0, 0, 1], TOPIC, &[0, 0]].concat());
    Ok(())
}

/// Metadata v1 of all topics.
fn has_topic(server: &Instance) -> Result<bool> {
    let answer = ask(server, 3, 1, &(-1_i32).to_be_bytes())?;
    Ok(answer.windows(TOPIC.len()).any(|part| part == TOPIC))
}

/// Returns the response, without its length and correlation id.
fn ask(server: &Instance, api: i16, version: i16, body: &[u8]) -> Result<Vec<u8>> {
    let header =
        [&api.to_be_bytes()[..], &version.to_be_bytes(), &7_i32.to_be_bytes(), &(-1_i16).to_be_bytes()].concat();
    let length = u32::try_from(header.len() + body.len())?;
    let mut stream = TcpStream::connect(server.url())?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    stream.write_all(&[&length.to_be_bytes(), &header[..], body].concat())?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut answer = vec![0; u32::from_be_bytes(length) as usize];
    stream.read_exact(&mut answer)?;
    Ok(answer.split_off(4))
}
