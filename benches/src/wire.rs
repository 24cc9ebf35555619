//! A relay in front of PostgreSQL that counts the statements of all its clients.
//!
//! PostgreSQL's own numbers do not serve: `pg_stat_database` counts transactions, those of autovacuum among them, and
//! `pg_stat_statements` is a module that a server may lack.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use anyhow::{Context, Result};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use url::Url;

/// The relay. It ends when the value is dropped.
pub(crate) struct Relay {
    /// The server's URL, with the address of the relay.
    pub(crate) url: String,
    statements: Arc<AtomicUsize>,
    _listening: JoinSet<()>,
}

impl Relay {
    pub(crate) async fn start(url: &str) -> Result<Self> {
        let mut url: Url = url.parse().context("DATABASE_URL is not a URL")?;
        let host = url.host_str().context("DATABASE_URL names no host: statements are counted over TCP")?;
        let server = format!("{host}:{}", url.port().unwrap_or(5432));
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let port = listener.local_addr()?.port();
        url.set_host(Some("127.0.0.1"))?;
        url.set_port(Some(port)).ok().context("the port cannot be set")?;
        // What is encrypted cannot be counted.
        url.query_pairs_mut().append_pair("sslmode", "disable");
        let statements = Arc::new(AtomicUsize::new(0));
        let (counted, mut listening) = (statements.clone(), JoinSet::new());
        listening.spawn(async move {
            let mut relayed = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                if let Ok(server) = TcpStream::connect(&server).await {
                    relayed.spawn(relay(client, server, counted.clone()));
                }
            }
        });
        Ok(Self { url: url.into(), statements, _listening: listening })
    }

    /// Returns the number of statements so far.
    pub(crate) fn statements(&self) -> usize {
        self.statements.load(Relaxed)
    }
}

async fn relay(client: TcpStream, server: TcpStream, statements: Arc<AtomicUsize>) {
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let mut wire = Wire::default();
    let count = |bytes: &[u8]| {
        statements.fetch_add(wire.statements(bytes), Relaxed);
    };
    tokio::select! {
        () = copy(from_client, to_server, count) => {}
        () = copy(from_server, to_client, |_| {}) => {}
    }
}

async fn copy(mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin, mut see: impl FnMut(&[u8])) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        see(&buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// The messages of one client, which may be split anywhere (PostgreSQL manual, 55.7).
#[derive(Default)]
struct Wire {
    unread: Vec<u8>,
    has_started: bool,
}

impl Wire {
    /// Returns how many statements end with these bytes: each Execute is one, and each simple query as many as its text
    /// has. Parse and Describe run nothing.
    fn statements(&mut self, bytes: &[u8]) -> usize {
        self.unread.extend_from_slice(bytes);
        let mut statements = 0;
        while let Some((kind, body)) = self.message() {
            statements += match kind {
                Some(b'E') => 1,
                // A semicolon within a literal would count, too; idem sends none.
                Some(b'Q') => body.split(|byte| *byte == b';').filter(|text| !is_blank(text)).count(),
                _ => 0,
            };
        }
        statements
    }

    /// Takes the next whole message. The first one has no kind.
    fn message(&mut self) -> Option<(Option<u8>, Vec<u8>)> {
        let head = usize::from(self.has_started);
        let length = u32::from_be_bytes(*self.unread.get(head..)?.first_chunk()?) as usize;
        let body = self.unread.get(head + 4..head + length)?.to_vec();
        let kind = (head == 1).then(|| self.unread[0]);
        self.unread.drain(..head + length);
        self.has_started = true;
        Some((kind, body))
    }
}

fn is_blank(text: &[u8]) -> bool {
    text.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: &[u8], body: &[u8]) -> Vec<u8> {
        [kind, &(body.len() as u32 + 4).to_be_bytes(), body].concat()
    }

    #[test]
    fn statements_are_counted_wherever_their_bytes_are_split() {
        let sent = [
            message(b"", b"\0\x03\0\0user\0idem\0\0"),
            message(b"Q", b"BEGIN; SET LOCAL lock_timeout = 1000; \0"),
            message(b"P", b"name\0SELECT 1\0\0\0"),
            message(b"E", b"\0\0\0\0\0"),
            message(b"S", b""),
        ]
        .concat();
        for size in 1..sent.len() {
            let mut wire = Wire::default();
            assert_eq!(sent.chunks(size).map(|bytes| wire.statements(bytes)).sum::<usize>(), 3, "pieces of {size}");
        }
    }
}
