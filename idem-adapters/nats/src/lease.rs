//! A lease: how long the source owns a delivery, and what may still be sent for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

/// The lease of one delivery.
///
/// The server does not distinguish the attempts of a message: a late release would take the message from the worker
/// that has it by then. In case of doubt, the lease therefore counts as ended.
pub(crate) struct Lease {
    /// The subject on which the consumer receives the delivery's acks.
    pub(crate) reply: String,
    pub(crate) sequence: u64,
    pub(crate) wait: Duration,
    /// Whether the stream was recreated since, or the source was closed.
    over: Arc<AtomicBool>,
    state: Mutex<State>,
}

pub(crate) struct State {
    since: Instant,
    holder: Holder,
    /// Another attempt of the same message has arrived or will arrive, so this one has ended on the server.
    superseded: bool,
}

/// The holder of a delivery.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Holder {
    /// An acker or the buffer.
    Held,
    /// Nothing: it was dropped.
    Nobody,
    /// It is being settled, was settled, or may have been settled.
    Settling,
    /// Nothing: the source has released it.
    Released,
}

impl Lease {
    /// `over` becomes true when the stream was recreated or the source was closed.
    pub(crate) fn new(reply: String, sequence: u64, wait: Duration, over: Arc<AtomicBool>) -> Self {
        let state = State { since: Instant::now(), holder: Holder::Held, superseded: false };
        Self { reply, sequence, wait, over, state: Mutex::new(state) }
    }

    /// Returns whether the lease certainly lasts.
    pub(crate) fn is_live(&self) -> bool {
        !self.is_void() && !self.state().superseded && self.end() > Instant::now()
    }

    /// Returns when the lease ends. The server counts from the time of sending; a tenth is subtracted for the transfer.
    pub(crate) fn end(&self) -> Instant {
        self.state().since + self.wait * 9 / 10
    }

    /// Extends the lease after the server confirmed a request that was sent at `at`: the lease began again then or
    /// later. An ended lease stays ended, because the confirmation may apply to the next attempt.
    pub(crate) fn extended(&self, at: Instant) {
        if self.is_live() {
            let mut state = self.state();
            state.since = state.since.max(at);
        }
    }

    /// Records that the acker was dropped. A lease that is being settled does not change: it may be settled already.
    pub(crate) fn drop_it(&self) {
        let mut state = self.state();
        if state.holder == Holder::Held {
            state.holder = Holder::Nobody;
        }
    }

    /// Marks the delivery as being settled. Returns `false` if it can no longer be settled.
    pub(crate) fn settle(&self) -> bool {
        let can = !self.is_void();
        if can {
            self.state().holder = Holder::Settling;
        }
        can
    }

    /// Returns whether it can never be settled again: it was released, or its number may refer to another message.
    pub(crate) fn is_void(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.is(Holder::Released)
    }

    /// Returns whether a third of the lease of a held delivery has passed.
    pub(crate) fn is_due(&self) -> bool {
        self.is(Holder::Held) && self.is_live() && self.state().since.elapsed() * 3 >= self.wait
    }

    /// Records that another attempt of the same message has arrived or will arrive.
    pub(crate) fn supersede(&self) {
        self.state().superseded = true;
    }

    /// Records that the source releases it.
    pub(crate) fn release(&self) {
        self.state().holder = Holder::Released;
    }

    pub(crate) fn is(&self, holder: Holder) -> bool {
        self.state().holder == holder
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn lease() -> Lease {
        Lease::new(String::new(), 1, WAIT, Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_a_tenth_before_the_ack_wait() {
        let lease = lease();
        advance(Duration::from_secs(26)).await;
        assert!(lease.is_live());
        advance(Duration::from_secs(1)).await;
        assert!(!lease.is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_extended_from_when_it_was_asked_for_and_never_revived() {
        let lease = lease();
        advance(Duration::from_secs(20)).await;
        let asked = Instant::now();
        advance(Duration::from_secs(5)).await;
        lease.extended(asked);
        advance(Duration::from_secs(21)).await;
        assert!(lease.is_live());
        advance(Duration::from_secs(1)).await;
        assert!(!lease.is_live());
        lease.extended(Instant::now());
        assert!(!lease.is_live(), "the server may have given it to another in the meantime");
    }
}
