//! A TCP relay in front of a server, which can cut, refuse and delay connections. It records what clients send.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{broadcast, watch};

/// A relay in front of a server. It ends with its runtime.
pub struct Relay {
    port: u16,
    state: watch::Sender<State>,
    said: Arc<Mutex<Vec<Said>>>,
    words: broadcast::Sender<Vec<u8>>,
}

/// The bytes that a client sent on one connection, one piece per read.
type Said = Arc<Mutex<Vec<Vec<u8>>>>;

#[derive(Clone, Copy, PartialEq)]
struct State {
    generation: u32,
    refuses: bool,
    delay: Duration,
}

impl Relay {
    /// Starts a relay in front of the server at this address.
    pub async fn start(address: &str) -> Self {
        let target = authority(address).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, seen) = watch::channel(State { generation: 0, refuses: false, delay: Duration::ZERO });
        let said: Arc<Mutex<Vec<Said>>> = Arc::default();
        let words = broadcast::Sender::new(4);
        let (heard, spoken) = (said.clone(), words.clone());
        let server_port: u16 = target.rsplit(':').next().unwrap().parse().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !seen.borrow().refuses
                    && let Ok(server) = TcpStream::connect(&target).await
                {
                    let said = Said::default();
                    heard.lock().unwrap().push(said.clone());
                    let words = spoken.subscribe();
                    tokio::spawn(relay(client, server, seen.clone(), (server_port, port), said, words));
                }
            }
        });
        Self { port, state, said, words }
    }

    /// Returns the address with the relay in place of the server.
    pub fn address(&self, address: &str) -> String {
        address.replacen(authority(address), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Closes all connections, and accepts new ones.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Closes all connections, and starts or stops refusing new ones.
    pub fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| (state.generation, state.refuses) = (state.generation + 1, refuses));
    }

    /// Delays all data from now on, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.state.send_modify(|state| state.delay = delay);
    }

    /// Sends these bytes to all clients as if from the server. Nothing else may be on its way to them.
    pub fn say(&self, word: &[u8]) {
        let _ = self.words.send(word.to_vec());
    }

    /// The bytes that clients have sent, by connection. A piece is roughly one write.
    pub fn said(&self) -> Vec<Vec<Vec<u8>>> {
        self.said.lock().unwrap().iter().map(|said| said.lock().unwrap().clone()).collect()
    }
}

async fn relay(
    client: TcpStream,
    server: TcpStream,
    mut state: watch::Receiver<State>,
    ports: (u16, u16),
    said: Said,
    words: broadcast::Receiver<Vec<u8>>,
) {
    let generation = state.borrow().generation;
    let (there, back) = (state.clone(), state.clone());
    let (_silent, silence) = broadcast::channel(1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = async { drop(state.wait_for(|state| state.generation != generation).await) } => {}
        () = copy(from_client, to_server, there, silence, |bytes| said.lock().unwrap().push(bytes.to_vec())) => {}
        () = copy(from_server, to_client, back, words, |bytes| stay(bytes, ports)) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    state: watch::Receiver<State>,
    mut words: broadcast::Receiver<Vec<u8>>,
    change: impl Fn(&mut [u8]),
) {
    let mut buffer = vec![0; 65536];
    loop {
        let length = tokio::select! {
            biased;
            Ok(word) = words.recv() => {
                buffer[..word.len()].copy_from_slice(&word);
                word.len()
            }
            read = from.read(&mut buffer) => match read {
                Ok(length @ 1..) => length,
                _ => return,
            },
        };
        change(&mut buffer[..length]);
        let delay = state.borrow().delay;
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// A Kafka broker sends its clients its own address, and they would bypass the relay. The address is a host followed by
/// a port in four bytes (Kafka protocol, Metadata and FindCoordinator), so the relay's port fits in the same place.
fn stay(bytes: &mut [u8], (server, relay): (u16, u16)) {
    let told = [&b"127.0.0.1"[..], &u32::from(server).to_be_bytes()].concat();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(told.len()).position(|window| window == told) {
        let end = from + at + told.len();
        bytes[end - 4..end].copy_from_slice(&u32::from(relay).to_be_bytes());
        from = end;
    }
}

/// The `host:port` of an address with or without a scheme.
fn authority(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap();
    authority.rsplit('@').next().unwrap()
}
