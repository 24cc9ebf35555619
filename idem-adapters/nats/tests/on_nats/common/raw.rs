//! Messages that async-nats can neither read nor publish.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::World;
use idem_conformance::authority;

/// Headers that are not UTF-8.
pub(crate) const UNREADABLE: &[u8] = b"NATS/1.0\r\nname: \xff\r\n\r\n";

/// Publishes a message with unreadable headers and the payload `x`.
pub(crate) async fn publish_unreadable(world: &World) {
    publish_raw(world, world.subject().as_bytes(), UNREADABLE).await;
}

/// Publishes a message with this subject and these headers, and the payload `x`.
pub(crate) async fn publish_raw(world: &World, subject: &[u8], headers: &[u8]) {
    let mut raw = TcpStream::connect(authority(&world.url)).await.unwrap();
    let mut frame = b"CONNECT {\"headers\":true,\"verbose\":false}\r\n".to_vec();
    let sizes = format!(" {} {}\r\n", headers.len(), headers.len() + 1);
    frame.extend([b"HPUB ", subject, sizes.as_bytes(), headers, b"x\r\nPING\r\n"].concat());
    raw.write_all(&frame).await.unwrap();
    let mut answer = Vec::new();
    while !answer.ends_with(b"PONG\r\n") {
        assert_ne!(raw.read_buf(&mut answer).await.unwrap(), 0);
    }
}
