//! A TCP proxy in front of the server that also injects frames, and counts acks and new secrets.

use std::ops::Deref;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex};

use idem_conformance::Proxy;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};

pub(crate) struct Relay {
    proxy: Proxy,
    words: Arc<Mutex<Vec<mpsc::UnboundedSender<Vec<u8>>>>>,
    seen: Seen,
}

/// The frames that the relay looks for.
#[derive(Clone, Default)]
struct Seen {
    /// The channel that consumes.
    consuming: Arc<Mutex<Option<u16>>>,
    /// The number of new secrets.
    secrets: watch::Sender<usize>,
    /// The number of acks.
    acks: Arc<AtomicUsize>,
}

impl Relay {
    /// Starts a relay in front of the server of this URL.
    pub(crate) async fn start(url: &str) -> Self {
        let (words, seen) = (Arc::<Mutex<Vec<_>>>::default(), Seen::default());
        let (senders, frames) = (words.clone(), seen.clone());
        let passing = move |client, server| {
            let (word, inbox) = mpsc::unbounded_channel();
            senders.lock().unwrap().push(word);
            pass(client, server, inbox, frames.clone())
        };
        Self { proxy: Proxy::passing(url, passing).await, words, seen }
    }

    /// Waits until connections were sent this many new secrets.
    pub(crate) async fn renewed(&self, secrets: usize) {
        self.seen.secrets.subscribe().wait_for(|seen| *seen >= secrets).await.unwrap();
    }

    /// Returns how many acks clients have sent so far, each of which settles one delivery or several.
    pub(crate) fn acks(&self) -> usize {
        self.seen.acks.load(SeqCst)
    }

    /// Acks a delivery that does not exist, on the channel that consumes: the server closes that channel.
    pub(crate) fn ack_nonsense(&self) {
        // Class basic, method ack, tag 99, not multiple.
        self.say(&[(1, [&[0, 60, 0, 80], &99_u64.to_be_bytes()[..], &[0]].concat())]);
    }

    /// Sends frames of these types and contents on the channel that consumes.
    fn say(&self, frames: &[(u8, Vec<u8>)]) {
        let channel = self.seen.consuming.lock().unwrap().expect("nobody consumes").to_be_bytes();
        let word = frames.iter().flat_map(|(kind, content)| {
            let length = (content.len() as u32).to_be_bytes();
            [&[*kind], &channel[..], &length, content, &[0xCE]].concat()
        });
        self.words.lock().unwrap().last().unwrap().send(word.collect()).unwrap();
    }
}

impl Deref for Relay {
    type Target = Proxy;

    fn deref(&self) -> &Proxy {
        &self.proxy
    }
}

async fn pass(mut client: TcpStream, mut server: TcpStream, mut words: mpsc::UnboundedReceiver<Vec<u8>>, seen: Seen) {
    let (mut from_client, mut from_server) = (vec![0; 65536], vec![0; 65536]);
    loop {
        tokio::select! {
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
