//! Ordered lanes: the deliveries of one lane are handled one after another.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::pipeline::Pipeline;
use crate::store::Identity;
use crate::{Acker, Store};

use super::lane::kept;

/// The lanes in which there is something.
#[derive(Clone, Default)]
pub(crate) struct Lanes(Arc<Mutex<Waiting>>);

type Waiting = HashMap<u64, VecDeque<Arc<Notify>>>;

impl Lanes {
    /// The last place of a lane. Deliveries take theirs in the order in which they come, by one task, and then wait for
    /// their turn in whichever they are.
    pub(crate) fn place(&self, lane: u64) -> Place {
        let turn = Arc::new(Notify::new());
        let place = Place { lanes: self.clone(), lane, turn: turn.clone() };
        self.lock().entry(lane).or_default().push_back(turn);
        place
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A place in a lane, until it is dropped, which moves the lane.
pub(crate) struct Place {
    lanes: Lanes,
    lane: u64,
    turn: Arc<Notify>,
}

impl Place {
    /// Waits until all that came before has left the lane. Cancel safe.
    pub(crate) async fn turn(&self) {
        while !self.is_first() {
            // Rung once, and kept if nobody waits: whoever becomes the first stays it.
            self.turn.notified().await;
        }
    }

    /// Whether all that came before has left the lane.
    pub(crate) fn is_first(&self) -> bool {
        let lanes = self.lanes.lock();
        lanes.get(&self.lane).and_then(VecDeque::front).is_some_and(|first| Arc::ptr_eq(first, &self.turn))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut lanes = self.lanes.lock();
        let Some(lane) = lanes.get_mut(&self.lane) else { return };
        lane.retain(|turn| !Arc::ptr_eq(turn, &self.turn));
        match lane.front() {
            Some(first) => first.notify_one(),
            None => drop(lanes.remove(&self.lane)),
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Waits for the turn of a delivery in its lane. `false` where it will not come: the worker drains, or the delivery is
    /// no longer ours.
    pub(crate) async fn turn<A: Acker>(&self, acker: &mut A, place: &Place) -> bool {
        self.unless_over(acker, place.turn()).await
    }

    /// Waits, in its lane, until a message that is in the inbox is processed or dead. `false` where the worker drains before
    /// that, or the delivery is no longer ours.
    ///
    /// The row is run by whoever takes it, here or in another process. It is looked at whenever it has run here, and else
    /// at each poll.
    pub(crate) async fn row_done<A: Acker>(&self, acker: &mut A, identity: &Identity) -> bool {
        let done = async {
            let watch = self.rows.watch(identity);
            let mut due = false;
            loop {
                let mut ran = std::pin::pin!(watch.ran.notified());
                // From now on, so that a run which ends while the row is looked at is not missed.
                ran.as_mut().enable();
                let parked = {
                    let _look = self.rows.look.lock().await;
                    if !std::mem::replace(&mut due, true) {
                        self.make_due(identity).await;
                    }
                    self.store.is_parked(identity).await
                };
                match parked {
                    Ok(true) => {}
                    Ok(false) => return,
                    Err(fault) => drop(self.hold_for(fault)),
                }
                tokio::select! {
                    () = ran => {}
                    () = tokio::time::sleep(crate::inbox::jittered(self.settings.poll)) => {}
                }
                self.outage.over().await;
            }
        };
        self.unless_over(acker, done).await
    }

    pub(super) async fn unless_over<A: Acker>(&self, acker: &mut A, what: impl Future<Output = ()>) -> bool {
        tokio::select! {
            biased;
            () = self.draining.cancelled() => false,
            () = what => true,
            () = kept(acker, LOOK) => false,
        }
    }
}

/// How often a delivery that waits is looked at, whether it is still ours.
const LOOK: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn has_its_turn(place: &Place) -> bool {
        place.turn().now_or_never().is_some()
    }

    #[test]
    fn a_lane_moves_in_the_order_of_its_places() {
        let lanes = Lanes::default();
        let (first, second, third) = (lanes.place(1), lanes.place(1), lanes.place(1));
        let other = lanes.place(2);
        assert!(has_its_turn(&first) && has_its_turn(&other));
        assert!(!has_its_turn(&second) && !has_its_turn(&third));
        drop(first);
        assert!(has_its_turn(&second) && !has_its_turn(&third));
        drop(second);
        assert!(has_its_turn(&third));
    }

    #[test]
    fn whoever_leaves_from_the_middle_lets_nobody_pass() {
        let lanes = Lanes::default();
        let (first, second, third) = (lanes.place(1), lanes.place(1), lanes.place(1));
        drop(second);
        assert!(has_its_turn(&first) && !has_its_turn(&third));
        drop(first);
        assert!(has_its_turn(&third));
        drop(third);
        assert!(lanes.lock().is_empty(), "nothing is left behind");
    }

    #[tokio::test]
    async fn whoever_waits_is_woken() {
        let lanes = Lanes::default();
        let (first, second) = (lanes.place(1), lanes.place(1));
        let waiter = tokio::spawn(async move { second.turn().await });
        tokio::task::yield_now().await;
        drop(first);
        tokio::time::timeout(Duration::from_secs(5), waiter).await.unwrap().unwrap();
    }
}
