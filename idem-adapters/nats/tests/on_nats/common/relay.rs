//! A TCP relay in front of the server that can be cut, refuse connections, hang, and respond for the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

#[derive(Clone)]
pub(crate) struct Relay {
    port: u16,
    state: Arc<watch::Sender<State>>,
    connections: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq, Default)]
struct State {
    generation: u32,
    refuses: bool,
    hangs: bool,
}

impl Relay {
    /// Starts a relay in front of the server at this URL.
    pub(crate) async fn start(url: &str) -> Self {
        let target = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(watch::Sender::new(State::default()));
        let seen = state.subscribe();
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if seen.borrow().refuses {
                    continue;
                }
                count.fetch_add(1, SeqCst);
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                tokio::spawn(relay(client, server, seen.clone()));
            }
        });
        Self { port, state, connections }
    }

    /// Returns how many connections it has accepted.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Returns the URL of the relay.
    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Closes all connections, and accepts new ones.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Closes all connections, and refuses new ones or accepts them again.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| (state.generation, state.refuses) = (state.generation + 1, refuses));
    }

    /// Silently passes nothing on, or passes data on again.
    pub(crate) fn hang(&self, hangs: bool) {
        self.state.send_modify(|state| state.hangs = hangs);
    }
}

async fn relay(mut client: TcpStream, mut server: TcpStream, mut state: watch::Receiver<State>) {
    let generation = state.borrow().generation;
    let (mut from_client, mut from_server) = (vec![0; 65536], vec![0; 65536]);
    loop {
        let State { generation: now, hangs, .. } = *state.borrow_and_update();
        if now != generation {
            return;
        }
        tokio::select! {
            biased;
            changed = state.changed() => if changed.is_err() { return },
            read = client.read(&mut from_client), if !hangs => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => if server.write_all(&from_client[..length]).await.is_err() { return },
            },
            read = server.read(&mut from_server), if !hangs => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => if client.write_all(&from_server[..length]).await.is_err() { return },
            },
        }
    }
}

/// Returns `host:port` of a URL, as the tests get it.
pub(crate) fn authority(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    rest.split('/').next().unwrap().rsplit('@').next().unwrap()
}
