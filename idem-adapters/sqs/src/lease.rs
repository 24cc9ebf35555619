//! A lease: how long the source owns a delivery, and what may still be sent for it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use crate::chain::Place;

/// The longest time for which SQS hides a message, counted from the receive.
pub(crate) const LONGEST: Duration = Duration::from_secs(12 * 3600);

/// The lease of one delivery.
///
/// On a standard queue, SQS confirms the delete of a message that another worker has by then, and may not have deleted it. So
/// the local clock decides whether the lease lasts. It counts from before the request that brought or extended the delivery.
pub(crate) struct Lease {
    /// The handle of this delivery; the next delivery of the message has another one.
    pub(crate) handle: String,
    received: Instant,
    /// The place in its group, if the worker keeps an order.
    place: Option<Place>,
    /// Whether the source was closed.
    over: Arc<AtomicBool>,
    state: Mutex<State>,
}

struct State {
    since: Instant,
    /// The visibility timeout that was asked for last: it is another one if the queue was changed.
    visibility: Duration,
    holder: Holder,
    /// The queue has refused to extend it, or to settle it.
    refused: bool,
    /// It was extended for as long as SQS allows.
    is_last: bool,
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
    /// `received` is the time before the receive was sent. `over` becomes true when the source was closed.
    pub(crate) fn new(
        handle: String,
        visibility: Duration,
        received: Instant,
        place: Option<Place>,
        over: Arc<AtomicBool>,
    ) -> Self {
        let state = State { since: received, visibility, holder: Holder::Held, refused: false, is_last: false };
        Self { handle, received, place, over, state: Mutex::new(state) }
    }

    /// Returns whether the lease certainly lasts, and no delivery of its group before this one ended unsettled.
    pub(crate) fn is_live(&self) -> bool {
        if self.is_void() || self.is_cut_off() {
            return false;
        }
        let lasts = self.lasts();
        if !lasts && self.is(Holder::Held) {
            self.break_chain();
        }
        lasts
    }

    /// Returns whether the queue still hides the message because of this delivery.
    pub(crate) fn lasts(&self) -> bool {
        let state = self.state();
        // A tenth is subtracted for the way of the next request.
        !state.refused && state.since + state.visibility * 9 / 10 > Instant::now()
    }

    /// Returns whether a delivery of its group before this one ended unsettled.
    pub(crate) fn is_cut_off(&self) -> bool {
        self.place.as_ref().is_some_and(Place::is_cut_off)
    }

    fn break_chain(&self) {
        if let Some(place) = &self.place {
            place.break_chain();
        }
    }

    /// Extends the lease after the queue confirmed a request for this visibility that was sent at `at`.
    pub(crate) fn extended(&self, at: Instant, visibility: Duration) {
        let mut state = self.state();
        (state.since, state.visibility) = (at, visibility);
    }

    /// Records that the queue knows this delivery no more.
    pub(crate) fn refuse(&self) {
        self.state().refused = true;
        if self.is(Holder::Held) {
            self.break_chain();
        }
    }

    /// Records that the acker was dropped. A lease that is being settled does not change: it may be settled already.
    pub(crate) fn drop_it(&self) {
        let was_held = {
            let mut state = self.state();
            let was_held = state.holder == Holder::Held;
            if was_held {
                state.holder = Holder::Nobody;
            }
            was_held
        };
        if was_held {
            self.break_chain();
        }
    }

    /// Marks the delivery as being settled. Returns `false` if it can no longer be settled.
    pub(crate) fn settle(&self) -> bool {
        let can = self.is_live();
        if can {
            self.state().holder = Holder::Settling;
        }
        can
    }

    /// Records that it is released.
    pub(crate) fn release(&self) {
        self.state().holder = Holder::Released;
        self.break_chain();
    }

    /// Returns whether it can never be settled again.
    fn is_void(&self) -> bool {
        self.over.load(Ordering::Relaxed) || self.is(Holder::Released)
    }

    /// Returns whether a third of the lease of a held delivery has passed, and it can be extended.
    pub(crate) fn is_due(&self) -> bool {
        if !self.is(Holder::Held) || !self.is_live() {
            return false;
        }
        let state = self.state();
        !state.is_last && state.since.elapsed() * 3 >= state.visibility
    }

    /// Returns whether another extension would be beyond what SQS allows. `true` only once.
    pub(crate) fn reaches_its_end(&self) -> bool {
        // A minute for a clock that runs at another speed, and for the way of the request.
        let mut state = self.state();
        let is_last = self.received.elapsed() + state.visibility + Duration::from_secs(60) > LONGEST;
        std::mem::replace(&mut state.is_last, is_last) != is_last
    }

    pub(crate) fn is(&self, holder: Holder) -> bool {
        self.state().holder == holder
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use crate::chain::Chains;

    const VISIBILITY: Duration = Duration::from_secs(30);

    fn lease(place: Option<Place>) -> Lease {
        Lease::new("handle".to_owned(), VISIBILITY, Instant::now(), place, Arc::default())
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_a_tenth_before_the_visibility_and_is_then_never_settled() {
        let lease = lease(None);
        advance(Duration::from_secs(26)).await;
        assert!(lease.is_live());
        advance(Duration::from_secs(1)).await;
        assert!(!lease.is_live() && !lease.settle());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_extended_from_when_it_was_asked_for() {
        let lease = lease(None);
        advance(Duration::from_secs(9)).await;
        assert!(!lease.is_due());
        advance(Duration::from_secs(11)).await;
        assert!(lease.is_due());
        let asked = Instant::now();
        advance(Duration::from_secs(5)).await;
        lease.extended(asked, VISIBILITY);
        advance(Duration::from_secs(21)).await;
        assert!(lease.is_live());
        advance(Duration::from_secs(1)).await;
        assert!(!lease.is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_is_extended_by_a_shorter_visibility_ends_with_that() {
        let lease = lease(None);
        advance(VISIBILITY / 2).await;
        lease.extended(Instant::now(), VISIBILITY / 10);
        assert!(lease.is_live());
        advance(VISIBILITY / 10).await;
        assert!(!lease.is_live());
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_not_extended_beyond_twelve_hours() {
        let lease = lease(None);
        advance(LONGEST - Duration::from_secs(91)).await;
        lease.extended(Instant::now(), VISIBILITY);
        assert!(!lease.reaches_its_end());
        advance(Duration::from_secs(10)).await;
        assert!(lease.is_due() && lease.reaches_its_end());
        assert!(!lease.is_due() && !lease.reaches_its_end(), "it is said once");
        assert!(lease.is_live(), "until its end");
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_behind_one_that_ended_unsettled_is_not_live() {
        for end in [Lease::drop_it, Lease::release, Lease::refuse] {
            let chains = Chains::default();
            let [first, second, third] = ["a"; 3].map(|group| lease(Some(chains.join(group))));
            assert!(first.settle());
            end(&second);
            assert!(!third.is_live() && third.lasts());
        }
        let chains = Chains::default();
        let first = lease(Some(chains.join("a")));
        advance(VISIBILITY / 2).await;
        let second = lease(Some(chains.join("a")));
        advance(VISIBILITY / 2).await;
        assert!(!first.is_live() && !second.is_live(), "the first has expired");
    }
}
