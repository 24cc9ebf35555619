//! Ordered lanes: the deliveries of one lane are handled one after another.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::Delivery;

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

/// A delivery that can run, with its place among those of its ordering key, of which it is the first.
pub(crate) type Arrival<A> = (Delivery, A, Option<Place>);

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
        tokio::time::timeout(std::time::Duration::from_secs(5), waiter).await.unwrap().unwrap();
    }
}
