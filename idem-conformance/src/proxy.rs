//! A TCP proxy in front of a server, which a test cuts and holds.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use tokio::io::copy;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A TCP proxy in front of a server. Its connections end when it is dropped.
#[derive(Debug, Clone)]
pub struct Proxy {
    address: String,
    state: Arc<watch::Sender<State>>,
    connections: Arc<AtomicUsize>,
}

#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// How often all connections were closed.
    generation: u32,
    refuses: bool,
    holds: bool,
}

impl Proxy {
    /// Starts a proxy in front of the server of this URL, or at this `host:port`.
    pub async fn start(url: &str) -> Self {
        Self::passing(url, pass).await
    }

    /// Starts a proxy whose connections forward by `pass`, and close when that ends.
    pub async fn passing<P: Future<Output = ()> + Send + 'static>(
        url: &str,
        pass: impl Fn(TcpStream, TcpStream) -> P + Send + 'static,
    ) -> Self {
        let target = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (state, connections) = (Arc::new(watch::Sender::new(State::default())), Arc::<AtomicUsize>::default());
        let (seen, count) = (state.subscribe(), connections.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if seen.borrow().refuses {
                    continue;
                }
                count.fetch_add(1, SeqCst);
                let Ok(server) = TcpStream::connect(&target).await else { continue };
                tokio::spawn(until_cut(pass(client, server), seen.clone()));
            }
        });
        Self { address, state, connections }
    }

    /// The `host:port` of the proxy.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// This URL with the address of the proxy.
    pub fn url(&self, url: &str) -> String {
        url.replacen(authority(url), &self.address, 1)
    }

    /// How many connections it has accepted.
    pub fn connections(&self) -> usize {
        self.connections.load(SeqCst)
    }

    /// Closes all connections, and accepts new ones.
    pub fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Closes all connections, and refuses new ones or accepts them again.
    pub fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| (state.generation, state.refuses) = (state.generation + 1, refuses));
    }

    /// Keeps all connections open and forwards nothing, or goes on.
    pub fn hold(&self, holds: bool) {
        self.state.send_modify(|state| state.holds = holds);
    }
}

async fn until_cut(passing: impl Future<Output = ()>, mut state: watch::Receiver<State>) {
    let generation = state.borrow().generation;
    let mut passing = pin!(passing);
    loop {
        let State { generation: now, holds, .. } = *state.borrow_and_update();
        if now != generation {
            return;
        }
        tokio::select! {
            () = &mut passing, if !holds => return,
            changed = state.changed() => if changed.is_err() { return },
        }
    }
}

/// Forwards in both directions until one side has closed.
async fn pass(mut client: TcpStream, mut server: TcpStream) {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    tokio::select! {
        _ = copy(&mut from_client, &mut to_server) => {}
        _ = copy(&mut from_server, &mut to_client) => {}
    }
}

/// The `host:port` of a URL.
pub fn authority(url: &str) -> &str {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    rest.split('/').next().unwrap().rsplit('@').next().unwrap()
}
