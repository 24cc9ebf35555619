//! A proxy in front of PostgreSQL that counts round trips.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

/// The proxy. It ends when the value is dropped.
pub(crate) struct Wire {
    /// The server's URL, with the address of the proxy.
    pub(crate) url: String,
    trips: Arc<AtomicUsize>,
    _listening: JoinSet<()>,
}

impl Wire {
    pub(crate) async fn start(url: &str) -> Self {
        let target: PgConnectOptions = url.parse().unwrap();
        let server = (target.get_host().to_owned(), target.get_port());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        // What is encrypted cannot be counted.
        let url = target.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable).to_url_lossy().to_string();
        let (trips, mut listening) = (Arc::new(AtomicUsize::new(0)), JoinSet::new());
        let counted = trips.clone();
        listening.spawn(async move {
            let mut proxied = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server.clone()).await.unwrap();
                proxied.spawn(proxy(client, server, counted.clone()));
            }
        });
        Self { url, trips, _listening: listening }
    }

    /// The number of times for which clients have waited for an answer so far.
    pub(crate) fn trips(&self) -> usize {
        self.trips.load(SeqCst)
    }
}

async fn proxy(client: TcpStream, server: TcpStream, trips: Arc<AtomicUsize>) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) =
        (client.into_split(), server.into_split());
    let there = async {
        let (mut buffer, mut unread, mut has_started) = (vec![0; 16 * 1024], Vec::new(), false);
        while let Ok(length @ 1..) = from_client.read(&mut buffer).await {
            unread.extend_from_slice(&buffer[..length]);
            trips.fetch_add(ends(&mut unread, &mut has_started), SeqCst);
            if to_server.write_all(&buffer[..length]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = there => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

/// Takes the whole messages of a client, and returns how many of them ask for an answer: a simple query, or the end of an
/// extended one (PostgreSQL manual, 55.7). The first message has no kind.
fn ends(unread: &mut Vec<u8>, has_started: &mut bool) -> usize {
    let mut ends = 0;
    loop {
        let head = usize::from(*has_started);
        let length = unread.get(head..).and_then(|rest| rest.first_chunk()).map(|length| u32::from_be_bytes(*length));
        let Some(end) = length.map(|length| head + length as usize).filter(|end| *end <= unread.len()) else {
            return ends;
        };
        ends += usize::from(*has_started && matches!(unread[0], b'Q' | b'S'));
        unread.drain(..end);
        *has_started = true;
    }
}
