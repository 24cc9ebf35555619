//! A TCP relay in front of a broker, which can be cut and can refuse connections. Clients connect to the address that a
//! broker advertises, so the relay writes its own port into those answers.

use std::pin::pin;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

pub(crate) struct Relay {
    port: u16,
    state: watch::Sender<State>,
}

#[derive(Clone, Copy, PartialEq)]
struct State {
    generation: u32,
    refuses: bool,
    hangs: bool,
}

impl Relay {
    /// Starts a relay in front of the broker at this `host:port`, which must be the address that it advertises.
    pub(crate) async fn start(broker: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let places = places(broker, port);
        let (state, seen) = watch::channel(State { generation: 0, refuses: false, hangs: false });
        let target = broker.to_owned();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if seen.borrow().refuses {
                    continue;
                }
                let server = TcpStream::connect(&target).await.unwrap();
                let (mut seen, places) = (seen.clone(), places.clone());
                tokio::spawn(async move {
                    let first = *seen.borrow_and_update();
                    let (mut state, mut passing) = (first, pin!(pass(client, server, &places)));
                    while state.generation == first.generation {
                        tokio::select! {
                            () = &mut passing, if !state.hangs => return,
                            changed = seen.changed() => if changed.is_err() { return },
                        }
                        state = *seen.borrow_and_update();
                    }
                });
            }
        });
        Self { port, state }
    }

    pub(crate) fn broker(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Closes all connections, and accepts new ones.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Closes all connections, and refuses new ones or accepts them again.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| *state = State { generation: state.generation + 1, refuses, ..*state });
    }

    /// Keeps all connections open and forwards nothing more.
    pub(crate) fn hang(&self) {
        self.set_hanging(true);
    }

    /// Forwards nothing more on any connection, or goes on.
    pub(crate) fn set_hanging(&self, hangs: bool) {
        self.state.send_modify(|state| state.hangs = hangs);
    }
}

/// The address that the broker advertises, and its replacement.
pub(crate) fn places(broker: &str, port: u16) -> (Vec<u8>, Vec<u8>) {
    let (host, real) = broker.rsplit_once(':').unwrap();
    let place = |port: u16| [host.as_bytes(), &i32::from(port).to_be_bytes()].concat();
    (place(real.parse().unwrap()), place(port))
}

/// Forwards data in both directions until one side has closed.
pub(crate) async fn pass(client: impl AsyncRead + AsyncWrite, server: TcpStream, places: &(Vec<u8>, Vec<u8>)) {
    let (mut from_client, to_client) = tokio::io::split(client);
    let (from_server, mut to_server) = server.into_split();
    tokio::select! {
        _ = tokio::io::copy(&mut from_client, &mut to_server) => {}
        _ = answers(from_server, to_client, places) => {}
    }
}

/// Forwards answers frame by frame.
async fn answers(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    (said, instead): &(Vec<u8>, Vec<u8>),
) -> std::io::Result<()> {
    loop {
        let length = from.read_u32().await?;
        let mut frame = vec![0; length as usize];
        from.read_exact(&mut frame).await?;
        while let Some(at) = frame.windows(said.len()).position(|window| window == said) {
            frame[at..at + said.len()].copy_from_slice(instead);
        }
        to.write_u32(length).await?;
        to.write_all(&frame).await?;
        to.flush().await?;
    }
}
