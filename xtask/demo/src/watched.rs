//! A source that is watched, with the failpoint between commit and ack.
//!
//! The failpoint is the demo's: idem acks only after the commit, so a process that ends when it is asked to ack ends
//! between the two.

use std::collections::HashSet;
use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use idem::{Acker, BoxError, Delivery, Settled, Source, Terms};
use idem_test::tap::{AckTap, Tap};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::journal::{Event, Journal};
use crate::plan::{Order, id_of};

/// What the source, its ackers and the handler share.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) journal: Journal,
    pub(crate) returned: Returned,
    /// At which ack after a commit the process ends.
    end_at: Option<u64>,
    /// How many there were.
    acks: Arc<AtomicU64>,
    /// Whether the source was opened once.
    pub(crate) opened: Arc<AtomicBool>,
    /// Where all processes write.
    dir: PathBuf,
}

impl Watch {
    pub(crate) fn new(journal: Journal, end_at: Option<u64>, dir: PathBuf) -> Self {
        Self { journal, returned: Returned::default(), end_at, acks: Arc::default(), opened: Arc::default(), dir }
    }

    /// How often this message has been tried by now, in whatever process and however the tries ended.
    pub(crate) fn tries(&self, id: u64) -> Result<u64, BoxError> {
        let path = self.dir.join(format!("tries-{id}"));
        let mut file = std::fs::OpenOptions::new().create(true).append(true).open(path)?;
        file.write_all(b".")?;
        Ok(file.metadata()?.len())
    }

    /// The handler has begun, and runs as long as this lives.
    pub(crate) fn run(&self, id: u64) -> InHand {
        InHand::begin(Event::Begun, Event::Ended, id, &self.journal)
    }

    /// Ends the process if it is to end here.
    async fn failpoint(&self, id: u64) -> Result<(), BoxError> {
        if self.end_at == Some(self.acks.fetch_add(1, Ordering::SeqCst) + 1) {
            self.journal.note(Event::Ending, id);
            kill(Pid::this(), Signal::SIGKILL)?;
            std::future::pending::<()>().await;
        }
        Ok(())
    }
}

/// The messages whose handler has returned well in this process: if one of them is acked, a commit came before.
#[derive(Debug, Clone, Default)]
pub(crate) struct Returned(Arc<Mutex<HashSet<u64>>>);

impl Returned {
    pub(crate) fn add(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn has(&self, id: u64) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(&id)
    }
}

/// Work of this process: its end is noted also where it is dropped.
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

/// Notes each delivery, and the moment at which the source is open.
impl Tap for Watch {
    type Ack = WatchAck;

    async fn open<S: Source>(&mut self, source: &mut S, terms: Terms) -> Result<(), BoxError> {
        source.open(terms).await?;
        self.opened.store(true, Ordering::SeqCst);
        Ok(())
    }

    fn receive(&mut self, delivery: Delivery) -> (Delivery, WatchAck) {
        let came = if delivery.redelivered() { Event::Redelivered } else { Event::Delivered };
        let in_hand = InHand::begin(came, Event::Settled, id(&delivery), &self.journal);
        let has_key = serde_json::from_slice(delivery.payload()).is_ok_and(|order: Order| order.has_key());
        (delivery, WatchAck { in_hand, has_key, stored: false, watch: self.clone() })
    }
}

/// Goes with a delivery that is watched.
pub(crate) struct WatchAck {
    in_hand: InHand,
    /// Whether the database holds a claim of it once it is stored.
    has_key: bool,
    stored: bool,
    watch: Watch,
}

impl AckTap for WatchAck {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let Self { in_hand, has_key, stored, watch } = self;
        if stored && has_key || watch.returned.has(in_hand.id) {
            watch.failpoint(in_hand.id).await?;
        }
        let settled = acker.ack().await;
        drop(in_hand);
        settled
    }

    fn stored(&mut self) {
        self.stored = true;
    }
}

/// The number of the message.
pub(crate) fn id(delivery: &Delivery) -> u64 {
    id_of(delivery.payload()).unwrap_or(u64::MAX)
}
