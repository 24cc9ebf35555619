//! A TCP relay in front of a server, which can be cut, and refuse.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A relay in front of a server. It ends with its runtime.
pub struct Relay {
    port: u16,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq)]
struct State {
    generation: u32,
    refuses: bool,
}

impl Relay {
    /// In front of the server of this address.
    pub async fn start(address: &str) -> Self {
        let target = authority(address).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, seen) = watch::channel(State { generation: 0, refuses: false });
        let server_port: u16 = target.rsplit(':').next().unwrap().parse().unwrap();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if !seen.borrow().refuses
                    && let Ok(server) = TcpStream::connect(&target).await
                {
                    tokio::spawn(relay(client, server, seen.clone(), (server_port, port)));
                }
            }
        });
        Self { port, state }
    }

    /// The same address by way of the relay.
    pub fn address(&self, address: &str) -> String {
        address.replacen(authority(address), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Ends all connections, and accepts new ones.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Ends all connections, and refuses new ones or no longer.
    pub fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| *state = State { generation: state.generation + 1, refuses });
    }
}

async fn relay(client: TcpStream, server: TcpStream, mut state: watch::Receiver<State>, ports: (u16, u16)) {
    let generation = state.borrow().generation;
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = async { drop(state.wait_for(|state| state.generation != generation).await) } => {}
        () = copy(from_client, to_server, |_| ()) => {}
        () = copy(from_server, to_client, |bytes| stay(bytes, ports)) => {}
    }
}

async fn copy(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, change: impl Fn(&mut [u8])) {
    let mut buffer = vec![0; 65536];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        change(&mut buffer[..length]);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// A Kafka broker tells its clients where it is, and they would go there past the relay. Its address is a host followed
/// by a port in four bytes (Kafka protocol, Metadata and FindCoordinator), so that the relay's fits in the same place.
fn stay(bytes: &mut [u8], (server, relay): (u16, u16)) {
    let told = [&b"127.0.0.1"[..], &u32::from(server).to_be_bytes()].concat();
    let mut from = 0;
    while let Some(at) = bytes[from..].windows(told.len()).position(|window| window == told) {
        let end = from + at + told.len();
        bytes[end - 4..end].copy_from_slice(&u32::from(relay).to_be_bytes());
        from = end;
    }
}

/// `host:port` of an address, with or without a scheme.
fn authority(address: &str) -> &str {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let authority = rest.split('/').next().unwrap();
    authority.rsplit('@').next().unwrap()
}
