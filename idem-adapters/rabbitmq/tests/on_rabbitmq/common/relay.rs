//! A TCP relay in front of the server that can cut and refuse connections, inject frames, and count acks.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, watch};

pub(crate) struct Relay {
    port: u16,
    state: watch::Sender<State>,
    words: Arc<Mutex<Vec<mpsc::UnboundedSender<Vec<u8>>>>>,
    consuming: Arc<Mutex<Option<u16>>>,
    secrets: watch::Sender<usize>,
    acks: Arc<AtomicUsize>,
}

/// The frames that the relay looks for.
#[derive(Clone)]
struct Seen {
    /// The channel that consumes.
    consuming: Arc<Mutex<Option<u16>>>,
    /// The number of new secrets.
    secrets: watch::Sender<usize>,
    /// The number of acks.
    acks: Arc<AtomicUsize>,
}

#[derive(Clone, Copy, PartialEq)]
struct State {
    generation: u32,
    refuses: bool,
    /// Whether nothing is forwarded.
    held: bool,
}

impl Relay {
    /// Starts a relay in front of the server of this URL.
    pub(crate) async fn start(url: &str) -> Self {
        let target = authority(url).to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (state, seen) = watch::channel(State { generation: 0, refuses: false, held: false });
        let words = Arc::<Mutex<Vec<_>>>::default();
        let senders = Arc::clone(&words);
        let frames = Seen { consuming: Arc::default(), secrets: watch::Sender::new(0), acks: Arc::default() };
        let Seen { consuming, secrets, acks } = frames.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                if seen.borrow().refuses {
                    continue;
                }
                let server = TcpStream::connect(&target).await.unwrap();
                let (word, inbox) = mpsc::unbounded_channel();
                senders.lock().unwrap().push(word);
                tokio::spawn(relay(client, server, seen.clone(), inbox, frames.clone()));
            }
        });
        Self { port, state, words, consuming, secrets, acks }
    }

    /// Returns the URL with the relay's address.
    pub(crate) fn url(&self, url: &str) -> String {
        url.replacen(authority(url), &format!("127.0.0.1:{}", self.port), 1)
    }

    /// Waits until connections were sent this many new secrets.
    pub(crate) async fn renewed(&self, secrets: usize) {
        self.secrets.subscribe().wait_for(|seen| *seen >= secrets).await.unwrap();
    }

    /// Returns how many acks clients have sent so far, each of which settles one delivery or several.
    pub(crate) fn acks(&self) -> usize {
        self.acks.load(SeqCst)
    }

    /// Returns how many connections were made so far.
    pub(crate) fn connections(&self) -> usize {
        self.words.lock().unwrap().len()
    }

    /// Ends all connections, and accepts new ones.
    pub(crate) fn cut(&self) {
        self.state.send_modify(|state| state.generation += 1);
    }

    /// Ends all connections, and refuses new ones or accepts them again.
    pub(crate) fn refuse(&self, refuses: bool) {
        self.state.send_modify(|state| *state = State { generation: state.generation + 1, refuses, held: state.held });
    }

    /// Stops to forward anything, or goes on.
    pub(crate) fn hold(&self, held: bool) {
        self.state.send_modify(|state| state.held = held);
    }

    /// Acks a delivery that does not exist, on the channel that consumes: the server closes that channel.
    pub(crate) fn ack_nonsense(&self) {
        // Class basic, method ack, tag 99, not multiple.
        self.say(&[(1, [&[0, 60, 0, 80], &99_u64.to_be_bytes()[..], &[0]].concat())]);
    }

    /// Sends frames of these types and contents on the channel that consumes.
    fn say(&self, frames: &[(u8, Vec<u8>)]) {
        let channel = self.consuming.lock().unwrap().expect("nobody consumes").to_be_bytes();
        let word = frames.iter().flat_map(|(kind, content)| {
            let length = (content.len() as u32).to_be_bytes();
            [&[*kind], &channel[..], &length, content, &[0xCE]].concat()
        });
        self.words.lock().unwrap().last().unwrap().send(word.collect()).unwrap();
    }
}

async fn relay(
    mut client: TcpStream,
    mut server: TcpStream,
    mut state: watch::Receiver<State>,
    mut words: mpsc::UnboundedReceiver<Vec<u8>>,
    seen: Seen,
) {
    let generation = state.borrow().generation;
    let (mut from_client, mut from_server) = (vec![0; 65536], vec![0; 65536]);
    loop {
        let now = *state.borrow_and_update();
        if now.generation != generation {
            return;
        }
        if now.held {
            if state.changed().await.is_err() {
                return;
            }
            continue;
        }
        tokio::select! {
            changed = state.changed() => if changed.is_err() {
                return;
            },
            Some(word) = words.recv() => server.write_all(&word).await.unwrap(),
            read = client.read(&mut from_client) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => {
                    let bytes = &from_client[..length];
                    // basic.consume is class 60, method 20, at offset 7 of its frame.
                    if let Some(at) = bytes.windows(4).position(|window| window == [0, 60, 0, 20]).filter(|at| *at >= 7) {
                        *seen.consuming.lock().unwrap() = Some(u16::from_be_bytes([bytes[at - 6], bytes[at - 5]]));
                    }
                    // connection.update-secret, on channel 0: class 10, method 70.
                    let secret = bytes.windows(4).filter(|window| *window == [0, 10, 0, 70]).count();
                    seen.secrets.send_modify(|secrets| *secrets += secret);
                    // basic.ack, with 13 bytes: class 60, method 80.
                    let ack = bytes.windows(8).filter(|window| *window == [0, 0, 0, 13, 0, 60, 0, 80]).count();
                    seen.acks.fetch_add(ack, SeqCst);
                    if server.write_all(bytes).await.is_err() {
                        return;
                    }
                }
            },
            read = server.read(&mut from_server) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => if client.write_all(&from_server[..length]).await.is_err() {
                    return;
                },
            },
        }
    }
}

/// Returns the `host:port` of a URL, as the tests receive it.
pub(crate) fn authority(url: &str) -> &str {
    let rest = url.split_once("://").unwrap().1;
    let authority = rest.split('/').next().unwrap();
    authority.rsplit('@').next().unwrap()
}
