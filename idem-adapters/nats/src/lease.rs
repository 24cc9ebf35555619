//! Leases: how long the source owns deliveries, and which of them are unsettled.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
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
    state: Mutex<State>,
}

struct State {
    since: Instant,
    holder: Holder,
    /// Another attempt of the same message has arrived or will arrive, so this one has ended on the server.
    superseded: bool,
}

/// The holder of a delivery.
#[derive(Clone, Copy, PartialEq)]
enum Holder {
    /// An acker or the buffer.
    Held,
    /// Nothing: it was dropped.
    Nobody,
    /// It is being settled, was settled, or may have been settled.
    Settling,
    /// The source has released it, or the stream was recreated and its number may refer to another message.
    Void,
}

impl Lease {
    pub(crate) fn new(reply: String, sequence: u64, wait: Duration) -> Self {
        let state = State { since: Instant::now(), holder: Holder::Held, superseded: false };
        Self { reply, sequence, wait, state: Mutex::new(state) }
    }

    /// Returns whether the lease certainly lasts.
    pub(crate) fn is_live(&self) -> bool {
        let lost = {
            let state = self.state();
            state.superseded || state.holder == Holder::Void
        };
        !lost && self.end() > Instant::now()
    }

    /// Returns when the lease ends. The server counts from the time of sending; a tenth is subtracted for the transfer.
    pub(crate) fn end(&self) -> Instant {
        self.state().since + self.wait * 9 / 10
    }

    /// Extends the lease after the server confirmed a request that was sent at `at`: the lease began again then or
    /// later. An ended lease stays ended, because the confirmation may apply to the next attempt.
    pub(crate) fn extended(&self, at: Instant) {
        let live = self.is_live();
        let mut state = self.state();
        if live {
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
        let mut state = self.state();
        let can = state.holder != Holder::Void;
        if can {
            state.holder = Holder::Settling;
        }
        can
    }

    /// Returns whether it can never be settled again.
    pub(crate) fn is_void(&self) -> bool {
        self.is(Holder::Void)
    }

    fn is(&self, holder: Holder) -> bool {
        self.state().holder == holder
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The unsettled deliveries of a source, by the number of the message in the stream.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<u64, Arc<Lease>>>,
    /// Notified when a delivery is removed.
    pub(crate) freed: Notify,
}

impl Leases {
    pub(crate) fn add(&self, lease: &Arc<Lease>) {
        if let Some(earlier) = self.held().insert(lease.sequence, Arc::clone(lease)) {
            earlier.state().superseded = true;
        }
    }

    /// Removes a settled delivery.
    pub(crate) fn remove(&self, lease: &Arc<Lease>) {
        let mut held = self.held();
        if held.get(&lease.sequence).is_some_and(|found| Arc::ptr_eq(found, lease)) {
            held.remove(&lease.sequence);
            drop(held);
            self.freed.notify_one();
        }
    }

    /// Returns whether the delivery is unsettled.
    pub(crate) fn has(&self, lease: &Arc<Lease>) -> bool {
        self.held().get(&lease.sequence).is_some_and(|found| Arc::ptr_eq(found, lease))
    }

    /// Returns the number of unsettled deliveries. It is called for each message, so it does not iterate over them.
    pub(crate) fn count(&self) -> usize {
        self.held().len()
    }

    /// Forgets the deliveries that nothing holds and whose lease has expired: the server has them back.
    pub(crate) fn sweep(&self) {
        let mut held = self.held();
        let before = held.len();
        held.retain(|_, lease| lease.is(Holder::Held) || lease.is_live());
        if held.len() < before {
            drop(held);
            self.freed.notify_one();
        }
    }

    /// Returns the held deliveries of whose lease a third has passed.
    pub(crate) fn due(&self) -> Vec<Arc<Lease>> {
        let now = Instant::now();
        self.some(|lease| {
            lease.is(Holder::Held) && lease.is_live() && now.duration_since(lease.state().since) * 3 >= lease.wait
        })
    }

    /// Takes the deliveries that nothing holds and whose lease lasts; with `all`, also those that are held.
    pub(crate) fn take(&self, all: bool) -> Vec<Arc<Lease>> {
        let left = self.some(|lease| (lease.is(Holder::Nobody) || all && lease.is(Holder::Held)) && lease.is_live());
        for lease in &left {
            lease.state().holder = Holder::Void;
            self.remove(lease);
        }
        left
    }

    /// Forgets all deliveries because the consumer was recreated and delivers them again. Their acks still reach the
    /// same messages.
    pub(crate) fn forget(&self) {
        for (_, lease) in self.held().drain() {
            lease.state().superseded = true;
        }
        self.freed.notify_one();
    }

    /// Forgets all deliveries because the stream was recreated or the source was closed: none can be settled any more.
    pub(crate) fn void(&self) {
        for (_, lease) in self.held().drain() {
            lease.state().holder = Holder::Void;
        }
        self.freed.notify_one();
    }

    fn some(&self, which: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        self.held().values().filter(|lease| which(lease)).cloned().collect()
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lease>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;

    const WAIT: Duration = Duration::from_secs(30);

    fn lease(leases: &Leases, sequence: u64) -> Arc<Lease> {
        let lease = Arc::new(Lease::new(String::new(), sequence, WAIT));
        leases.add(&lease);
        lease
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_a_tenth_before_the_ack_wait() {
        let lease = lease(&Leases::default(), 1);
        advance(Duration::from_secs(26)).await;
        assert!(lease.is_live());
        advance(Duration::from_secs(1)).await;
        assert!(!lease.is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_extended_from_when_it_was_asked_for_and_never_revived() {
        let lease = lease(&Leases::default(), 1);
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

    #[tokio::test(start_paused = true)]
    async fn a_held_lease_is_due_at_a_third_and_a_dropped_one_never() {
        let leases = Leases::default();
        let (held, dropped, settling) = (lease(&leases, 1), lease(&leases, 2), lease(&leases, 3));
        dropped.drop_it();
        assert!(settling.settle());
        advance(Duration::from_secs(9)).await;
        assert!(leases.due().is_empty());
        advance(Duration::from_secs(1)).await;
        let due = leases.due();
        assert!(due.len() == 1 && Arc::ptr_eq(&due[0], &held));
        held.extended(Instant::now());
        assert!(leases.due().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_delivery_counts_until_its_lease_has_expired() {
        let leases = Leases::default();
        let (held, dropped) = (lease(&leases, 1), lease(&leases, 2));
        dropped.drop_it();
        assert_eq!(leases.count(), 2);
        leases.sweep();
        assert_eq!(leases.count(), 2);
        advance(WAIT).await;
        leases.sweep();
        assert_eq!(leases.count(), 1, "its lane is still busy with the first");
        leases.remove(&held);
        assert_eq!(leases.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_later_attempt_ends_the_lease_of_the_one_before_and_keeps_its_own_place() {
        let leases = Leases::default();
        let (first, second) = (lease(&leases, 1), lease(&leases, 1));
        assert!(!first.is_live() && second.is_live());
        leases.remove(&first);
        assert_eq!(leases.count(), 1);
        assert!(first.settle(), "an ack can still be sent");
    }

    #[tokio::test(start_paused = true)]
    async fn only_what_is_surely_ours_is_taken_over_to_be_released() {
        let leases = Leases::default();
        let (_held, dropped, settling, late) =
            (lease(&leases, 1), lease(&leases, 2), lease(&leases, 3), lease(&leases, 4));
        dropped.drop_it();
        settling.settle();
        settling.drop_it();
        late.drop_it();
        late.state().superseded = true;
        let numbers = |all| leases.take(all).iter().map(|lease| lease.sequence).collect::<Vec<_>>();
        assert_eq!(numbers(false), [2]);
        assert_eq!(numbers(true), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_of_before_is_settled_where_the_numbers_are_those_of_others() {
        let leases = Leases::default();
        let old = lease(&leases, 1);
        leases.void();
        assert!(!old.is_live() && !old.settle());
        assert_eq!(leases.count(), 0);
    }
}
