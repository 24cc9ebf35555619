//! A source that is watched, with the failpoint between commit and ack.
//!
//! The failpoint is the demo's: idem acks only after the commit, so a process that ends when it is asked to ack ends
//! between the two.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use idem::{Acker, BoxError, Delivery, Settled, Source, Terms};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::handler::Returned;
use crate::journal::{Event, Journal};

/// What the source and its ackers share.
#[derive(Debug, Clone)]
pub(crate) struct Watch {
    pub(crate) journal: Journal,
    pub(crate) returned: Returned,
    /// Whether the process ends at its next ack after a commit.
    pub(crate) armed: Arc<AtomicBool>,
}

/// A source that is watched.
pub(crate) struct Watched<S> {
    pub(crate) source: S,
    pub(crate) watch: Watch,
}

impl<S: Source> Source for Watched<S> {
    type Acker = WatchedAcker<S::Acker>;

    fn system(&self) -> &'static str {
        self.source.system()
    }

    fn name(&self) -> &str {
        self.source.name()
    }

    async fn open(&mut self, terms: Terms) -> Result<(), BoxError> {
        self.source.open(terms).await
    }

    async fn next(&mut self) -> Result<(Delivery, Self::Acker), BoxError> {
        let (delivery, acker) = self.source.next().await?;
        let id = id(&delivery);
        self.watch.journal.note(if delivery.redelivered() { Event::Redelivered } else { Event::Delivered }, id);
        Ok((delivery, WatchedAcker { acker, id, watch: self.watch.clone() }))
    }

    async fn drain(&mut self) {
        self.source.drain().await;
    }

    async fn close(&mut self) {
        self.source.close().await;
    }
}

/// The acker of a watched delivery.
pub(crate) struct WatchedAcker<A> {
    acker: A,
    id: u64,
    watch: Watch,
}

impl<A: Acker> Acker for WatchedAcker<A> {
    async fn ack(self) -> Result<Settled, BoxError> {
        if self.watch.returned.has(self.id) && self.watch.armed.swap(false, Ordering::SeqCst) {
            self.watch.journal.note(Event::Ending, self.id);
            kill(Pid::this(), Signal::SIGKILL)?;
            std::future::pending::<()>().await;
        }
        let settled = self.acker.ack().await;
        self.watch.journal.note(Event::Settled, self.id);
        settled
    }

    async fn release(self) -> Result<Settled, BoxError> {
        let settled = self.acker.release().await;
        self.watch.journal.note(Event::Settled, self.id);
        settled
    }

    fn lease(&self) -> Option<Duration> {
        self.acker.lease()
    }

    async fn extend(&mut self) -> Result<(), BoxError> {
        self.acker.extend().await
    }

    fn is_live(&self) -> bool {
        self.acker.is_live()
    }
}

/// The number of the message, which is its message id.
pub(crate) fn id(delivery: &Delivery) -> u64 {
    delivery.message_id().and_then(|id| id.parse().ok()).unwrap_or(u64::MAX)
}
