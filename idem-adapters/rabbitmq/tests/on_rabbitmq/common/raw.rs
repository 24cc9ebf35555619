//! A publisher that sends strings that lapin would not: those that are not UTF-8.

#![allow(dead_code, reason = "each test uses a part of it")]

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// One connection, and one channel with publisher confirms.
pub(crate) struct Raw {
    server: TcpStream,
    /// Whether a queue has a delivery limit unless it is -1: true on 4.0 and later.
    limits: bool,
}

impl Raw {
    /// Logs in as `guest`.
    pub(crate) async fn connect(url: &str) -> Self {
        let rest = url.split_once("://").unwrap().1;
        let authority = rest.split('/').next().unwrap().rsplit('@').next().unwrap();
        let mut raw = Self { server: TcpStream::connect(authority).await.unwrap(), limits: false };
        raw.server.write_all(b"AMQP\x00\x00\x09\x01").await.unwrap();
        let start = raw.answer([0, 10, 0, 10]).await;
        let version = b"\x07versionS\0\0\0";
        let at = start.windows(version.len()).position(|bytes| bytes == version).unwrap() + version.len() + 1;
        raw.limits = start[at] >= b'4';
        // No client properties, and a login.
        let login = [&[0, 10, 0, 11, 0, 0, 0, 0, 5][..], b"PLAIN", &[0, 0, 0, 12], b"\0guest\0guest", &[5], b"en_US"];
        raw.send(1, 0, &login.concat()).await;
        raw.answer([0, 10, 0, 30]).await;
        // One channel, frames of 128 KiB, no heartbeat.
        raw.send(1, 0, &[0, 10, 0, 31, 0, 1, 0, 2, 0, 0, 0, 0]).await;
        raw.send(1, 0, &[0, 10, 0, 40, 1, b'/', 0, 0]).await;
        raw.answer([0, 10, 0, 41]).await;
        raw.send(1, 1, &[0, 20, 0, 10, 0]).await;
        raw.answer([0, 20, 0, 11]).await;
        raw.send(1, 1, &[0, 85, 0, 10, 0]).await;
        raw.answer([0, 85, 0, 11]).await;
        raw
    }

    /// Declares a quorum queue with a single active consumer and without a delivery limit.
    pub(crate) async fn declare_single_active(&mut self, queue: &str) {
        let single = [&[24][..], b"x-single-active-consumer", &[b't', 1]].concat();
        let limit = if self.limits { limit(-1) } else { Vec::new() };
        self.declare(queue, &[single, limit].concat()).await;
    }

    /// Declares a quorum queue with these further arguments.
    async fn declare(&mut self, queue: &str, arguments: &[u8]) {
        let arguments = [&b"\x0cx-queue-typeS\0\0\0\x06quorum"[..], arguments].concat();
        let name = [&[queue.len() as u8], queue.as_bytes()].concat();
        let length = (arguments.len() as u32).to_be_bytes();
        self.send(1, 1, &[&[0, 50, 0, 10, 0, 0], &name[..], &[2], &length, &arguments].concat()).await;
        self.answer([0, 50, 0, 11]).await;
    }

    /// Publishes to a queue with this property list: its flags, and the properties in the order of the flags.
    pub(crate) async fn publish(&mut self, queue: &str, properties: &[u8], body: &[u8]) {
        self.publish_by("", queue.as_bytes(), properties, body).await;
    }

    /// Publishes to an exchange with a routing key.
    pub(crate) async fn publish_by(&mut self, exchange: &str, key: &[u8], properties: &[u8], body: &[u8]) {
        let (exchange, length) = (exchange.as_bytes(), body.len() as u64);
        let to = [&[exchange.len() as u8], exchange, &[key.len() as u8], key].concat();
        self.send(1, 1, &[&[0, 60, 0, 40, 0, 0], &to[..], &[0]].concat()).await;
        self.send(2, 1, &[&[0, 60, 0, 0], &length.to_be_bytes()[..], properties].concat()).await;
        self.send(3, 1, body).await;
        self.answer([0, 60, 0, 80]).await;
    }

    async fn send(&mut self, kind: u8, channel: u16, content: &[u8]) {
        let length = (content.len() as u32).to_be_bytes();
        let frame = [&[kind], &channel.to_be_bytes()[..], &length, content, &[0xCE]].concat();
        self.server.write_all(&frame).await.unwrap();
    }

    async fn answer(&mut self, method: [u8; 4]) -> Vec<u8> {
        let mut head = [0; 7];
        self.server.read_exact(&mut head).await.unwrap();
        let mut content = vec![0; u32::from_be_bytes(head[3..].try_into().unwrap()) as usize + 1];
        self.server.read_exact(&mut content).await.unwrap();
        assert_eq!(content[..4], method, "{}", String::from_utf8_lossy(&content));
        content
    }
}

/// A property list that contains only a message id that is not UTF-8.
pub(crate) const BAD_ID: &[u8] = &[0, 0x80, 2, 0xFF, 0xFE];

/// The argument for a delivery limit.
fn limit(returns: i32) -> Vec<u8> {
    [&b"\x10x-delivery-limitI"[..], &returns.to_be_bytes()].concat()
}
