//! The health of a worker, and of several together. The kill switch, which pauses consumption when too many messages of a queue
//! become dead letters.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{Outcome, Reason};

/// The health of a worker, or of a relay, for a readiness probe. This is a handle: clones refer to the same worker.
/// [`Workers::health`](crate::Workers::health) returns one of several workers and relays.
///
/// Before the worker has started, while it drains and after it has ended, it is not ready, and neither the broker nor the
/// database counts as available.
///
/// ```
/// # use idem_core::{Health, Source, Store, Worker};
/// // For a readiness probe.
/// fn status(health: &Health) -> (u16, String) {
///     match health.paused() {
///         Some(why) => (503, why),
///         None if health.is_ready() => (200, "ready".to_owned()),
///         None => (503, format!("broker: {}, database: {}", health.broker(), health.database())),
///     }
/// }
/// # fn example<S: Store>(store: S, orders: impl Source) {
/// let worker = Worker::new("billing", store, orders);
/// let health = worker.health();
/// assert_eq!(status(&health).0, 503, "the worker does not run yet");
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct Health(Arc<[Arc<State>]>);

#[derive(Debug)]
struct State {
    broker: AtomicBool,
    database: AtomicBool,
    paused: watch::Sender<Option<String>>,
    /// Why nothing that handlers stage is published.
    unrelayed: Mutex<Option<String>>,
    /// Why the source cannot be consumed although its broker answers.
    unsubscribed: Mutex<Option<String>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        let state = State {
            broker: AtomicBool::new(false),
            database: AtomicBool::new(false),
            paused: watch::Sender::new(None),
            unrelayed: Mutex::new(None),
            unsubscribed: Mutex::new(None),
        };
        Self([Arc::new(state)].into())
    }

    /// Returns the health of all these workers together. Without a worker, it is never ready.
    pub(crate) fn of_all<'a>(workers: impl IntoIterator<Item = &'a Self>) -> Self {
        Self(workers.into_iter().flat_map(|worker| worker.0.iter().cloned()).collect())
    }

    fn all(&self, is_up: impl Fn(&State) -> bool) -> bool {
        !self.0.is_empty() && self.0.iter().all(|state| is_up(state))
    }

    /// Returns whether messages can be processed: the broker and the database are available, consumption is not paused, and
    /// a relay publishes what handlers stage. Of several workers: whether that holds for each.
    pub fn is_ready(&self) -> bool {
        let works = |state: &State| state.paused.borrow().is_none() && state.unrelayed.lock().is_none();
        self.broker() && self.database() && self.all(works)
    }

    /// Returns why what handlers stage is not published: no relay of the worker's outbox has been alive for a minute, while
    /// its messages are processed nevertheless; or more messages wait than [`backlog`](crate::Worker::backlog) permits, so
    /// consumption is paused until they are published. Of several workers: the reason of the first that has one.
    pub fn unrelayed(&self) -> Option<String> {
        self.0.iter().find_map(|state| state.unrelayed.lock().clone())
    }

    pub(crate) fn set_unrelayed(&self, why: Option<String>) {
        self.0.iter().for_each(|state| state.unrelayed.lock().clone_from(&why));
    }

    /// Returns whether the subscription is active. `false` as soon as its stream has ended, for whatever reason.
    pub fn broker(&self) -> bool {
        self.all(|state| state.broker.load(Relaxed))
    }

    /// Returns why the source refuses to be consumed although its broker answers: the queue, stream or consumer was deleted
    /// while the worker ran, or its settings would now lose or repeat messages. [`broker`](Self::broker) is `false` meanwhile.
    /// The log has it as an error. The worker tries again and consumes when it is repaired, but does not repair it by itself.
    /// Of several workers: the reason of the first that has one.
    pub fn unsubscribed(&self) -> Option<String> {
        self.0.iter().find_map(|state| state.unsubscribed.lock().clone())
    }

    /// Returns whether that is another reason than before.
    pub(crate) fn set_unsubscribed(&self, why: Option<String>) -> bool {
        let is_new = |state: &&Arc<State>| std::mem::replace(&mut *state.unsubscribed.lock(), why.clone()) != why;
        self.0.iter().filter(is_new).count() > 0
    }

    /// Returns whether the database accepts idem's work. `false` while it does not answer, rejects writes (disk full,
    /// read-only, missing table), or refuses every message that is parked, so that no further one can be received. A
    /// single lost connection changes nothing as long as the database answers. While it answers and rejects writes,
    /// work is tried again after 0.1 to 30 seconds, and for the moment of each try this is `true`.
    pub fn database(&self) -> bool {
        self.all(|state| state.database.load(Relaxed))
    }

    /// Returns why the worker has paused consumption by itself, if it has: no handler could be called for too many of
    /// the last deliveries, see [`undeliverable_limit`](crate::Worker::undeliverable_limit). The pause lasts until
    /// [`resume`](Self::resume) or until the worker is restarted. Of several workers: the reason of the first that has.
    pub fn paused(&self) -> Option<String> {
        self.0.iter().find_map(|state| state.paused.borrow().clone())
    }

    /// Resumes consumption after the worker has paused it by itself. The deliveries that it holds then become dead
    /// letters, like those before; if the limit is reached again, the worker pauses again. Does nothing if the worker
    /// is not paused. Of several workers: resumes each.
    ///
    /// ```
    /// # use idem_core::Health;
    /// /// For a route that an operator calls when the producer is repaired. Returns why consumption was paused.
    /// fn resume(health: &Health) -> Option<String> {
    ///     let why = health.paused();
    ///     health.resume();
    ///     why
    /// }
    /// ```
    pub fn resume(&self) {
        self.0.iter().for_each(|state| drop(state.paused.send_replace(None)));
    }

    pub(crate) fn pause(&self, why: String) {
        self.0.iter().for_each(|state| drop(state.paused.send_replace(Some(why.clone()))));
    }

    /// Waits until consumption of this worker is paused. Cancel safe.
    pub(crate) async fn pauses(&self) {
        match self.0.first() {
            // The sender lives in `self`, so waiting cannot fail.
            Some(state) => drop(state.paused.subscribe().wait_for(Option::is_some).await),
            None => std::future::pending().await,
        }
    }

    /// Waits until consumption is not paused. Cancel safe.
    pub(crate) async fn resumed(&self) {
        for state in self.0.iter() {
            // Checked first, because this is called for each delivery.
            if state.paused.borrow().is_some() {
                // The sender lives in `self`, so waiting cannot fail.
                let _ = state.paused.subscribe().wait_for(Option::is_none).await;
            }
        }
    }

    pub(crate) fn set_broker(&self, up: bool) {
        self.0.iter().for_each(|state| state.broker.store(up, Relaxed));
    }

    pub(crate) fn set_database(&self, up: bool) {
        self.0.iter().for_each(|state| state.database.store(up, Relaxed));
    }
}

/// Pauses consumption if too many of the last deliveries had no handler, no key or no readable payload, and none of the
/// others was processed or stored. In that case the worker's configuration is wrong, not the messages.
pub(crate) struct KillSwitch {
    /// The number of undeliverable messages, and the size of the window.
    limit: (usize, usize),
    last: Mutex<VecDeque<Seen>>,
    health: Health,
}

/// The kind of a delivery in the window.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    Undeliverable,
    Processed,
    /// A duplicate or a failure, which says nothing about the configuration.
    Other,
}

impl KillSwitch {
    pub(crate) fn new(limit: (usize, usize), health: Health) -> Self {
        Self { limit, last: Mutex::default(), health }
    }

    /// Returns whether an undeliverable delivery must be held now instead of becoming a dead letter.
    pub(crate) fn holds(&self, reason: Reason) -> bool {
        counts(reason) && self.health.paused().is_some()
    }

    /// Records a delivery that became a dead letter because it was undeliverable.
    pub(crate) fn undeliverable(&self, reason: Reason, error: &str) {
        let (limit, of) = self.limit;
        if !counts(reason) {
            return self.see(Seen::Other);
        }
        self.see(Seen::Undeliverable);
        let mut last = self.last.lock();
        let undeliverable = last.iter().filter(|seen| **seen == Seen::Undeliverable).count();
        if undeliverable < limit || last.contains(&Seen::Processed) {
            return;
        }
        // After a resume the window starts empty.
        last.clear();
        drop(last);
        let why = format!(
            "{undeliverable} of the last {of} deliveries became dead letters because no handler could be called for them, and \
             none was processed or stored. The last one: {reason}, {error}. Check that event types, the `.event_type(..)` \
             header, keys and codec match the producers' messages; the dead letters are kept, whole. Consumption resumes \
             after `Health::resume` or a restart; `.undeliverable_limit(..)` sets the limit"
        );
        tracing::error!(why, "consumption pauses");
        self.health.pause(why);
    }

    /// Records a delivery with another outcome.
    pub(crate) fn fit(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Processed => self.see(Seen::Processed),
            stored if stored.is_stored() => self.see(Seen::Processed),
            // Already counted by `undeliverable`.
            Outcome::Dead { reason } if counts(*reason) || *reason == Reason::TooLarge => {}
            _ => self.see(Seen::Other),
        }
    }

    fn see(&self, seen: Seen) {
        let mut last = self.last.lock();
        last.push_back(seen);
        if last.len() > self.limit.1 {
            last.pop_front();
        }
    }
}

/// Returns whether this reason indicates a wrong configuration.
fn counts(reason: Reason) -> bool {
    matches!(reason, Reason::NoKey | Reason::UnknownType | Reason::Undecodable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_several_workers_each_must_be_ready() {
        let (one, two) = (Health::new(), Health::new());
        let both = Health::of_all([&one, &two]);
        for worker in [&one, &two] {
            assert!(!both.is_ready());
            worker.set_broker(true);
            worker.set_database(true);
        }
        assert!(both.is_ready() && both.broker() && both.database());
        two.set_database(false);
        assert_eq!((both.is_ready(), both.broker(), both.database()), (false, true, false));
        two.set_database(true);
        two.pause("most deliveries cannot be handled".to_owned());
        assert_eq!((both.is_ready(), both.paused()), (false, two.paused()));
        both.resume();
        assert_eq!((both.is_ready(), two.paused()), (true, None));
        assert!(!Health::of_all([]).is_ready(), "no worker processes messages");
    }

    fn kill_switch(limit: usize, of: usize) -> (KillSwitch, Health) {
        let health = Health::new();
        (KillSwitch::new((limit, of), health.clone()), health)
    }

    fn undeliverable(kill_switch: &KillSwitch) {
        kill_switch.undeliverable(Reason::NoKey, "no header");
    }

    #[test]
    fn a_share_of_undeliverable_deliveries_pauses_and_says_why() {
        let (kill_switch, health) = kill_switch(3, 5);
        for outcome in [Outcome::Duplicate, Outcome::Dead { reason: Reason::Exhausted }] {
            undeliverable(&kill_switch);
            assert_eq!(health.paused(), None);
            kill_switch.fit(&outcome);
        }
        undeliverable(&kill_switch);
        let why = health.paused().unwrap();
        assert!(why.contains("3 of the last 5") && why.contains("no key") && why.contains("no header"), "{why}");
        assert!(kill_switch.holds(Reason::NoKey) && !kill_switch.holds(Reason::TooLarge));
        health.resume();
        assert!(!kill_switch.holds(Reason::NoKey));
        undeliverable(&kill_switch);
        assert_eq!(health.paused(), None, "it counts from the start");
    }

    #[test]
    fn one_that_was_processed_among_them_keeps_it_going() {
        let (kill_switch, health) = kill_switch(3, 5);
        for n in 0..50 {
            undeliverable(&kill_switch);
            if n % 4 == 0 {
                kill_switch.fit(&Outcome::Processed);
            }
        }
        assert_eq!(health.paused(), None);
        (0..5).for_each(|_| undeliverable(&kill_switch));
        assert!(health.paused().is_some(), "the good one is long ago");
    }

    #[test]
    fn processed_ones_that_fill_the_window_pass_out_of_it() {
        let (kill_switch, health) = kill_switch(3, 5);
        (0..50).for_each(|_| kill_switch.fit(&Outcome::Processed));
        (0..4).for_each(|_| undeliverable(&kill_switch));
        assert_eq!(health.paused(), None, "one of the last five was processed");
        kill_switch.fit(&Outcome::Processed);
        (0..4).for_each(|_| undeliverable(&kill_switch));
        assert_eq!(health.paused(), None, "another one was");
        undeliverable(&kill_switch);
        assert!(health.paused().is_some());
    }
}
