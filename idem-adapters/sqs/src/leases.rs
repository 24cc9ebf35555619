//! The unsettled deliveries of a source.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use crate::chain::Place;
use crate::lease::{Holder, Lease};

/// The unsettled deliveries of a source, by their receipt handles.
#[derive(Default)]
pub(crate) struct Leases {
    held: Mutex<HashMap<String, Arc<Lease>>>,
    /// Set in all leases at once when the source is closed.
    over: Mutex<Arc<AtomicBool>>,
    /// Notified when a delivery is removed.
    pub(crate) freed: Notify,
}

impl Leases {
    /// Adds a delivery whose receive was sent at `received`.
    pub(crate) fn add(
        &self,
        handle: String,
        visibility: Duration,
        received: Instant,
        place: Option<Place>,
    ) -> Arc<Lease> {
        let lease = Arc::new(Lease::new(handle, visibility, received, place, Arc::clone(&self.over())));
        self.held().insert(lease.handle.clone(), Arc::clone(&lease));
        lease
    }

    /// Removes a settled delivery.
    pub(crate) fn remove(&self, lease: &Lease) {
        if self.held().remove(&lease.handle).is_some() {
            self.freed.notify_one();
        }
    }

    /// Returns the number of unsettled deliveries.
    pub(crate) fn count(&self) -> usize {
        self.held().len()
    }

    /// Forgets the deliveries that nothing holds and whose lease has expired: the queue has them back.
    pub(crate) fn sweep(&self) {
        let mut held = self.held();
        let before = held.len();
        held.retain(|_, lease| lease.is(Holder::Held) || lease.lasts());
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
        self.take_some(|lease| lease.is(Holder::Nobody) || all && lease.is(Holder::Held))
    }

    /// Takes the deliveries behind one of their group that ended unsettled.
    pub(crate) fn take_cut_off(&self) -> Vec<Arc<Lease>> {
        self.take_some(|lease| lease.is_cut_off() && (lease.is(Holder::Nobody) || lease.is(Holder::Held)))
    }

    /// Ends all deliveries because the source is closed: none can be settled any more.
    pub(crate) fn void(&self) {
        std::mem::take(&mut *self.over()).store(true, Ordering::Relaxed);
        self.held().clear();
        self.freed.notify_one();
    }

    fn take_some(&self, which: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        let taken = self.some(|lease| which(lease) && lease.lasts());
        for lease in &taken {
            lease.release();
            self.remove(lease);
        }
        taken
    }

    fn some(&self, which: impl Fn(&Lease) -> bool) -> Vec<Arc<Lease>> {
        self.held().values().filter(|lease| which(lease)).cloned().collect()
    }

    fn over(&self) -> MutexGuard<'_, Arc<AtomicBool>> {
        self.over.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn held(&self) -> MutexGuard<'_, HashMap<String, Arc<Lease>>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::chain::Chains;

    const VISIBILITY: Duration = Duration::from_secs(30);

    fn lease(leases: &Leases, handle: &str) -> Arc<Lease> {
        leases.add(handle.to_owned(), VISIBILITY, Instant::now(), None)
    }

    fn handles(leases: &[Arc<Lease>]) -> Vec<&str> {
        let mut handles: Vec<_> = leases.iter().map(|lease| &*lease.handle).collect();
        handles.sort_unstable();
        handles
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_held_delivery_is_extended() {
        let leases = Leases::default();
        let (_held, dropped, settling) = (lease(&leases, "1"), lease(&leases, "2"), lease(&leases, "3"));
        dropped.drop_it();
        assert!(settling.settle());
        advance(VISIBILITY / 3).await;
        assert_eq!(handles(&leases.due()), ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_delivery_counts_until_its_lease_has_expired() {
        let leases = Leases::default();
        let (held, dropped) = (lease(&leases, "1"), lease(&leases, "2"));
        dropped.drop_it();
        leases.sweep();
        assert_eq!(leases.count(), 2);
        advance(VISIBILITY).await;
        leases.sweep();
        assert_eq!(leases.count(), 1, "its first delivery is still held");
        leases.remove(&held);
        assert_eq!(leases.count(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_lease_that_lasts_is_taken_to_be_released() {
        let leases = Leases::default();
        let late = lease(&leases, "0");
        late.drop_it();
        advance(VISIBILITY).await;
        let (_held, dropped, settling) = (lease(&leases, "1"), lease(&leases, "2"), lease(&leases, "3"));
        dropped.drop_it();
        settling.settle();
        assert_eq!(handles(&leases.take(false)), ["2"]);
        assert_eq!(handles(&leases.take(true)), ["1"]);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_behind_an_unsettled_end_of_its_group_is_taken_to_be_released() {
        let (leases, chains) = (Leases::default(), Chains::default());
        let add =
            |handle: &str, group| leases.add(handle.to_owned(), VISIBILITY, Instant::now(), Some(chains.join(group)));
        let (first, _second, _other) = (add("1", "a"), add("2", "a"), add("3", "b"));
        assert!(leases.take_cut_off().is_empty());
        first.drop_it();
        assert_eq!(handles(&leases.take_cut_off()), ["2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_settled_after_the_source_was_closed() {
        let leases = Leases::default();
        let before = lease(&leases, "1");
        leases.void();
        assert!(!before.is_live() && !before.settle() && leases.count() == 0);
        assert!(lease(&leases, "2").is_live());
    }
}
