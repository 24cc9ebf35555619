//! An instrumented source, with the failpoint between commit and ack, and a sink, with that between confirm and delete.
//!
//! The failpoints belong to the demo: idem acks only after the commit, and a relay deletes a message once its sink has
//! returned, so a process that kills itself when asked to ack, or there, ends between the two.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use idem::adapter::{Acker, Settled, Sink, SinkError, StagedMessage, SubscribeOptions};
use idem::{BoxError, Delivery, Source};
use idem_test::tap::{AckTap, SinkTap, Tap};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::hold::Signalled;
use crate::journal::{Event, Journal};
use crate::plan::{End, Order, id_of};

/// The state shared by the source, its ackers and the handler.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) journal: Journal,
    /// The messages whose handler has returned successfully in this process: an ack of one of them follows a commit.
    returned: Arc<Mutex<HashSet<u64>>>,
    pub(crate) signals: Signalled,
    /// Whether the source or the sink has been opened successfully.
    pub(crate) opened: Arc<AtomicBool>,
    /// The directory to which all processes write.
    dir: PathBuf,
    /// The queue, stream or topic to which relays publish.
    pub(crate) relayed: &'static str,
}

impl Watch {
    pub(crate) fn new(journal: Journal, dir: PathBuf, relayed: &'static str) -> Self {
        let signals = Signalled::new(&dir);
        Self { journal, returned: Arc::default(), signals, opened: Arc::default(), dir, relayed }
    }

    /// Counts an attempt of this message, and returns the number of attempts so far, in all processes and with any
    /// result.
    pub(crate) fn tries(&self, id: u64) -> Result<u64, BoxError> {
        let path = self.dir.join(format!("tries-{id}"));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(b".")?;
        Ok(file.metadata()?.len())
    }

    /// Records that the handler of this message has returned successfully.
    pub(crate) fn returned(&self, id: u64) {
        self.returned.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    /// Records that the handler has begun; it ends when the returned value is dropped.
    pub(crate) fn run(&self, id: u64) -> InHand {
        InHand::begin(Event::Begun, Event::Ended, id, &self.journal)
    }

    /// Records that a message arrives or is published; it is settled when the returned value is dropped.
    pub(crate) fn take(&self, id: u64) -> InHand {
        InHand::begin(Event::Delivered, Event::Settled, id, &self.journal)
    }

    /// Kills the process if the demo asks for it.
    pub(crate) async fn failpoint(&self, id: u64) -> Result<(), BoxError> {
        if self.signals.take_end() {
            self.journal.note(Event::Ending, id);
            kill(Pid::this(), Signal::SIGKILL)?;
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// Work of this process. Its end is recorded even when it is dropped.
#[derive(Debug)]
pub(crate) struct InHand {
    id: u64,
    end: Event,
    journal: Journal,
}

impl InHand {
    fn begin(begin: Event, end: Event, id: u64, journal: &Journal) -> Self {
        journal.note(begin, id);
        Self { id, end, journal: journal.clone() }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        self.journal.note(self.end, self.id);
    }
}

/// Records each delivery, and that the source has been opened.
impl Tap for Watch {
    type Ack = WatchAck;

    async fn subscribe<S: Source>(&mut self, source: &mut S, options: SubscribeOptions) -> Result<(), BoxError> {
        source.subscribe(options).await?;
        self.opened.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn receive(&mut self, delivery: Delivery) -> (Delivery, WatchAck) {
        let in_hand = self.take(id(&delivery));
        let order = serde_json::from_slice::<Order>(delivery.payload());
        let has_effect = order.is_ok_and(|order| order.has_key() && order.behaviour.end() == End::Effect);
        (delivery, WatchAck { in_hand, has_effect, stored: false, watch: self.clone() })
    }
}

/// The acker of a watched delivery.
pub(crate) struct WatchAck {
    in_hand: InHand,
    /// Whether the message must have an effect, so that its ack comes after a commit of its claim.
    has_effect: bool,
    stored: bool,
    watch: Watch,
}

impl AckTap for WatchAck {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let Self { in_hand, has_effect, stored, watch } = self;
        let has_returned = || watch.returned.lock().unwrap_or_else(PoisonError::into_inner).contains(&in_hand.id);
        if has_effect && (stored || has_returned()) {
            watch.failpoint(in_hand.id).await?;
        }
        watch.signals.wait().await;
        let settled = acker.ack().await;
        drop(in_hand);
        settled
    }

    fn stored(&mut self) {
        self.stored = true;
    }
}

/// Records when a message is published, and when the call has ended.
impl SinkTap for Watch {
    async fn open<K: Sink>(&self, sink: &K) -> Result<(), SinkError> {
        sink.open().await?;
        self.opened.store(true, Ordering::SeqCst);
        Ok(())
    }

    async fn publish<K: Sink>(&self, sink: &K, message: &StagedMessage) -> Result<(), SinkError> {
        let id = id_of(message.payload()).ok_or_else(|| SinkError::message("no message of the demo"))?;
        let _in_hand = self.take(id);
        self.signals.wait().await;
        sink.publish(message).await?;
        self.failpoint(id).await.map_err(SinkError::broker)
    }
}

/// Returns the number of the message.
pub(crate) fn id(delivery: &Delivery) -> u64 {
    id_of(delivery.payload()).unwrap_or(u64::MAX)
}
