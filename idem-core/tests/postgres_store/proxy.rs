//! A TCP proxy in front of the server, which counts round trips and can stop forwarding.

use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use sqlx::ConnectOptions;
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone, Default)]
struct Wire {
    trips: Arc<AtomicUsize>,
    /// Set while the client sends: everything it sends until the server replies is one round trip.
    speaking: Arc<AtomicBool>,
    silent: Arc<watch::Sender<bool>>,
    /// Set until a client sends COMMIT, whose answer it does not get.
    loses_commit: Arc<AtomicBool>,
    /// Set from then on: nothing that the server sends is forwarded.
    deaf: Arc<watch::Sender<bool>>,
    connections: Arc<AtomicUsize>,
}

pub(crate) struct Proxy {
    wire: Wire,
    pub(crate) url: String,
}

impl Proxy {
    pub(crate) async fn before(url: &str) -> Self {
        let target = PgConnectOptions::from_str(url).unwrap();
        let server = (target.get_host().to_owned(), target.get_port());
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let through = target.host("127.0.0.1").port(port).ssl_mode(PgSslMode::Disable);
        let wire = Wire::default();
        let shared = wire.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                shared.connections.fetch_add(1, SeqCst);
                let server = TcpStream::connect(&server).await.unwrap();
                server.set_nodelay(true).unwrap();
                client.set_nodelay(true).unwrap();
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(pump(from_client, to_server, shared.clone(), true));
                tokio::spawn(pump(from_server, to_client, shared.clone(), false));
            }
        });
        Self { wire, url: through.to_url_lossy().to_string() }
    }

    /// The round trips since the last call.
    pub(crate) fn trips(&self) -> usize {
        self.wire.trips.swap(0, SeqCst)
    }

    pub(crate) fn connections(&self) -> usize {
        self.wire.connections.load(SeqCst)
    }

    /// From now on nothing is forwarded and nothing is closed, as with a stopped server or a cut cable.
    pub(crate) fn fall_silent(&self) {
        self.wire.silent.send_replace(true);
    }

    /// The next COMMIT reaches the server, and all connections are lost before its answer.
    pub(crate) fn lose_the_answer_to_commit(&self) {
        self.wire.loses_commit.store(true, SeqCst);
    }

    /// Closes the silent connections, and forwards new ones.
    pub(crate) fn recover(&self) {
        self.wire.silent.send_replace(false);
        self.wire.deaf.send_replace(false);
    }
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, wire: Wire, client: bool) {
    let (mut silent, mut deaf) = (wire.silent.subscribe(), wire.deaf.subscribe());
    let mut buffer = vec![0; 65536];
    loop {
        let read = tokio::select! {
            biased;
            _ = silent.wait_for(|silent| *silent) => break,
            _ = deaf.wait_for(|deaf| *deaf), if !client => break,
            read = from.read(&mut buffer) => read.unwrap_or(0),
        };
        if wire.speaking.swap(client, SeqCst) != client && client {
            wire.trips.fetch_add(1, SeqCst);
        }
        let commits = client && buffer[..read].windows(6).any(|part| part == b"COMMIT");
        if commits && wire.loses_commit.swap(false, SeqCst) {
            wire.deaf.send_replace(true);
        }
        if read == 0 || to.write_all(&buffer[..read]).await.is_err() {
            return;
        }
    }
    // Keeps both sockets open until then.
    let _ = silent.wait_for(|silent| !*silent).await;
}
