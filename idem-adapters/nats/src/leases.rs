//! The unsettled deliveries of a source.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::lease::{Holder, Lease};

/// The unsettled deliveries of a source, by the number of the message in the stream.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<u64, Arc<Lease>>>,
    /// Set in all leases of one stream at once, also in those that are no longer listed: an attempt that was superseded
    /// can still be acked.
    over: Mutex<Arc<AtomicBool>>,
    /// Notified when a delivery is removed.
    pub(crate) freed: Notify,
}

impl Leases {
    /// Adds a delivery that has just arrived.
    pub(crate) fn add(&self, reply: String, sequence: u64, wait: Duration) -> Arc<Lease> {
        let lease = Arc::new(Lease::new(reply, sequence, wait, Arc::clone(&self.over())));
        if let Some(earlier) = self.held().insert(sequence, Arc::clone(&lease)) {
            earlier.supersede();
        }
        lease
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
    fn has(&self, lease: &Arc<Lease>) -> bool {
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
        self.some(Lease::is_due)
    }

    /// Takes the deliveries that nothing holds and whose lease lasts; with `all`, also those that are held.
    pub(crate) fn take(&self, all: bool) -> Vec<Arc<Lease>> {
        let left = self.some(|lease| (lease.is(Holder::Nobody) || all && lease.is(Holder::Held)) && lease.is_live());
        for lease in &left {
            lease.release();
            self.remove(lease);
        }
        left
    }

    /// Forgets all deliveries because the consumer was recreated and delivers them again. Their acks still reach the
    /// same messages.
    pub(crate) fn forget(&self) {
        for (_, lease) in self.held().drain() {
            lease.supersede();
        }
        self.freed.notify_one();
    }

    /// Forgets all deliveries because the stream was recreated or the source was closed: none can be settled any more.
    pub(crate) fn void(&self) {
        std::mem::take(&mut *self.over()).store(true, Ordering::Relaxed);
        self.held().clear();
        self.freed.notify_one();
    }

    fn some(&self, which: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        self.held().values().filter(|lease| which(lease)).cloned().collect()
    }

    fn over(&self) -> MutexGuard<'_, Arc<AtomicBool>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<u64, Arc<Lease>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The leases of unreadable messages. Nothing is pulled until they are settled, because a pull that brings one of them
/// again ends the connection.
#[derive(Default)]
pub(crate) struct First {
    leases: Vec<Arc<Lease>>,
    /// How many are unsettled. Shared with the source, which has room for nothing else meanwhile.
    left: Arc<AtomicUsize>,
}

impl First {
    pub(crate) fn new(leases: Vec<Arc<Lease>>) -> Self {
        Self { left: Arc::new(AtomicUsize::new(leases.len())), leases }
    }

    /// The number of unsettled ones, which follows [`are_settled`](Self::are_settled).
    pub(crate) fn count(&self) -> Arc<AtomicUsize> {
        Arc::clone(&self.left)
    }

    /// Returns whether none is unsettled any more.
    pub(crate) fn are_settled(&mut self, leases: &Leases) -> bool {
        self.leases.retain(|lease| leases.has(lease));
        self.left.store(self.leases.len(), Ordering::Relaxed);
        self.leases.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use std::thread;
    use tokio::time::{Instant, advance};

    const WAIT: Duration = Duration::from_secs(30);

    fn lease(leases: &Leases, sequence: u64) -> Arc<Lease> {
        leases.add(String::new(), sequence, WAIT)
    }

    /// It is called for each message, and there are thousands of them with batches.
    #[tokio::test]
    async fn counting_what_is_in_flight_looks_at_no_lease() {
        let leases = Arc::new(Leases::default());
        let lease = lease(&leases, 1);
        let busy = lease.state();
        let ((counted, count), counting) = (channel(), Arc::clone(&leases));
        thread::spawn(move || counted.send(counting.count()));
        let counted = count.recv_timeout(Duration::from_secs(10));
        drop(busy);
        assert_eq!(counted, Ok(1));
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
        assert_eq!(leases.count(), 1, "its first delivery is still held");
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
    async fn only_a_lease_that_is_certainly_held_is_taken_over_to_be_released() {
        let leases = Leases::default();
        let (_held, dropped, settling, late) =
            (lease(&leases, 1), lease(&leases, 2), lease(&leases, 3), lease(&leases, 4));
        dropped.drop_it();
        settling.settle();
        settling.drop_it();
        late.drop_it();
        late.supersede();
        let numbers = |all| leases.take(all).iter().map(|lease| lease.sequence).collect::<Vec<_>>();
        assert_eq!(numbers(false), [2]);
        assert_eq!(numbers(true), [1]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_delivery_is_settled_after_its_number_belongs_to_another() {
        let leases = Leases::default();
        let (earlier, old) = (lease(&leases, 1), lease(&leases, 1));
        leases.void();
        for lease in [earlier, old] {
            assert!(lease.is_void() && !lease.is_live() && !lease.settle());
        }
        assert_eq!(leases.count(), 0);
        assert!(lease(&leases, 1).is_live());
    }
}
