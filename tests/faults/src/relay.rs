//! A TCP relay in front of a server, which can cut, refuse and delay connections. It records what clients send.

use std::ops::Deref;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_conformance::{Proxy, authority};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{broadcast, watch};

/// A relay in front of a server.
pub struct Relay {
    proxy: Proxy,
    delay: watch::Sender<Duration>,
    said: Arc<Mutex<Vec<Said>>>,
    words: broadcast::Sender<Vec<u8>>,
}

/// The bytes that a client sent on one connection, one piece per read.
type Said = Arc<Mutex<Vec<Vec<u8>>>>;

impl Relay {
    /// Starts a relay in front of the server at this address.
    pub async fn start(address: &str) -> Self {
        let (delay, words) = (watch::Sender::new(Duration::ZERO), broadcast::Sender::new(4));
        let said: Arc<Mutex<Vec<Said>>> = Arc::default();
        let (heard, delayed, spoken) = (said.clone(), delay.subscribe(), words.clone());
        let server_port: u16 = authority(address).rsplit(':').next().unwrap().parse().unwrap();
        let passing = move |client: TcpStream, server| {
            let said = Said::default();
            heard.lock().unwrap().push(said.clone());
            let ports = (server_port, client.local_addr().unwrap().port());
            relay(client, server, delayed.clone(), ports, said, spoken.subscribe())
        };
        Self { proxy: Proxy::passing(address, passing).await, delay, said, words }
    }

    /// Delays all data from now on, in both directions.
    pub fn delay(&self, delay: Duration) {
        self.delay.send_replace(delay);
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

impl Deref for Relay {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

async fn relay(
    client: TcpStream,
    server: TcpStream,
    delay: watch::Receiver<Duration>,
    ports: (u16, u16),
    said: Said,
    words: broadcast::Receiver<Vec<u8>>,
) {
    let (_silent, silence) = broadcast::channel(1);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    let heard = |bytes: &mut [u8]| said.lock().unwrap().push(bytes.to_vec());
    tokio::select! {
        () = copy(from_client, to_server, delay.clone(), silence, heard) => {}
        () = copy(from_server, to_client, delay, words, |bytes| stay(bytes, ports)) => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    delay: watch::Receiver<Duration>,
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
        let delayed = *delay.borrow();
        if !delayed.is_zero() {
            tokio::time::sleep(delayed).await;
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
