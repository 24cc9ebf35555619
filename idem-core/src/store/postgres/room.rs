//! The slots of a pool, including idle connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::limits::Use;

/// The least time between two exchanges of an idle value for one of the other use. Each costs the server a login: without this,
/// a worker whose handlers and own statements want more connections together than there are would log in all the time.
const EXCHANGE: Duration = Duration::from_millis(100);

/// How long a value of the same use, of which some are in use, is waited for before an exchange.
const SOON: Duration = Duration::from_millis(20);

/// A limited number of slots. Clones share them.
pub(super) struct Room<T>(Arc<Shared<T>>);

struct Shared<T> {
    size: usize,
    permits: Arc<Semaphore>,
    /// One slot less: handlers that run for long must not keep the extension of their leases from getting one.
    lent: Arc<Semaphore>,
    state: Mutex<State<T>>,
    /// Notified when a value of this use, or space for one, may be there.
    lent_back: Notify,
    own_back: Notify,
}

struct State<T> {
    used_lent: usize,
    used_own: usize,
    /// The time of the last exchange.
    exchanged: Option<Instant>,
    // Used as a stack, so that few stay warm and those opened for a burst are seldom used.
    lent: Vec<T>,
    own: Vec<T>,
}

/// A slot in use. Released when it is dropped.
pub(super) struct Slot<T> {
    room: Arc<Shared<T>>,
    of: Use,
    back: Option<(Use, T)>,
    // Dropped last, so that the next waiter finds the slot free.
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl<T> Room<T> {
    pub(super) fn new(size: usize) -> Self {
        let (used_lent, used_own, exchanged) = (0, 0, None);
        let state = Mutex::new(State { used_lent, used_own, exchanged, lent: Vec::new(), own: Vec::new() });
        let (permits, lent) = (Arc::new(Semaphore::new(size)), Arc::new(Semaphore::new(size.saturating_sub(1).max(1))));
        Self(Arc::new(Shared { size, permits, lent, state, lent_back: Notify::new(), own_back: Notify::new() }))
    }

    /// Waits for a slot, of which one is never lent, and returns it with an idle value for this use, if any. If there
    /// is none, and no space for a new one, an idle value of the other use is closed. That is done at once if no value of this
    /// use is in use, otherwise if none comes back [`SOON`], and not more often than [`EXCHANGE`] says.
    pub(super) async fn enter(&self, of: Use) -> Result<(Slot<T>, Option<T>), AcquireError> {
        let mut lent = match of {
            Use::Lent => Some(self.0.lent.clone().acquire_owned().await?),
            Use::Own => None,
        };
        let began = Instant::now();
        loop {
            let permit = self.0.permits.clone().acquire_owned().await?;
            let due = match self.enter_now(of, began) {
                Ok(idle) => {
                    let slot = Slot { room: self.0.clone(), of, back: None, _permits: (permit, lent.take()) };
                    return Ok((slot, idle));
                }
                Err(due) => due,
            };
            // Given up while it waits, since the other use may have idle values.
            drop(permit);
            tokio::select! {
                () = self.0.back(of).notified() => {}
                () = sleep_until(due) => {}
            }
        }
    }

    /// Takes an idle value, or space for a new one. The error is when an exchange is due.
    fn enter_now(&self, of: Use, began: Instant) -> Result<Option<T>, Instant> {
        let mut state = self.0.state();
        let mut closed = None;
        let idle = state.idle(of).pop();
        if idle.is_none() && state.is_full(self.0.size) {
            match state.exchange_due(of, began) {
                Some(due) if due > Instant::now() => return Err(due),
                _ => closed = state.exchange(of.other()),
            }
        }
        *state.used(of) += 1;
        drop(state);
        drop(closed);
        Ok(idle)
    }

    /// Closes all idle values.
    pub(super) fn empty(&self) {
        let mut state = self.0.state();
        let closed = (std::mem::take(&mut state.lent), std::mem::take(&mut state.own));
        drop(state);
        drop(closed);
        self.0.lent_back.notify_one();
        self.0.own_back.notify_one();
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn back(&self, of: Use) -> &Notify {
        match of {
            Use::Lent => &self.lent_back,
            Use::Own => &self.own_back,
        }
    }
}

impl<T> State<T> {
    fn idle(&mut self, of: Use) -> &mut Vec<T> {
        match of {
            Use::Lent => &mut self.lent,
            Use::Own => &mut self.own,
        }
    }

    fn used(&mut self, of: Use) -> &mut usize {
        match of {
            Use::Lent => &mut self.used_lent,
            Use::Own => &mut self.used_own,
        }
    }

    /// Returns whether one more value needs the space of an idle one.
    fn is_full(&self, size: usize) -> bool {
        self.used_lent + self.used_own + self.lent.len() + self.own.len() >= size
    }

    /// Returns when an idle value of the other use may be closed for one that has waited since `began`. `None`: at once.
    fn exchange_due(&mut self, of: Use, began: Instant) -> Option<Instant> {
        let soon = began + SOON;
        let due = self.exchanged.map_or(soon, |at| soon.max(at + EXCHANGE));
        (*self.used(of) > 0).then_some(due)
    }

    /// Takes the oldest idle value out, to be closed.
    fn exchange(&mut self, of: Use) -> Option<T> {
        let idle = self.idle(of);
        let oldest = (!idle.is_empty()).then(|| idle.remove(0));
        if oldest.is_some() {
            self.exchanged = Some(Instant::now());
        }
        oldest
    }
}

impl<T> Slot<T> {
    /// Returns a value for this use that became idle after the slot was taken.
    pub(super) fn idle(&self, of: Use) -> Option<T> {
        self.room.state().idle(of).pop()
    }

    /// Releases the slot, and makes its value idle.
    pub(super) fn put_back(mut self, of: Use, idle: T) {
        self.back = Some((of, idle));
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let mut state = self.room.state();
        *state.used(self.of) -= 1;
        let back = self.back.take();
        let of = back.as_ref().map(|(of, _)| *of);
        if let Some((of, idle)) = back {
            state.idle(of).push(idle);
        }
        drop(state);
        match of {
            Some(of) => self.room.back(of).notify_one(),
            // There is space for a new one.
            None => [Use::Lent, Use::Own].into_iter().for_each(|of| self.room.back(of).notify_one()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn idle_connections_count_and_are_closed_for_the_other_use() {
        let room = Room::new(3);
        for name in ["one", "two"] {
            let (slot, idle) = room.enter(Use::Lent).await.unwrap();
            assert_eq!(idle, None);
            if name == "two" {
                slot.put_back(Use::Lent, name);
            } else {
                let (other, _) = room.enter(Use::Lent).await.unwrap();
                slot.put_back(Use::Lent, "one");
                drop(other);
                let _ = room.enter(Use::Lent).await.unwrap();
            }
        }
        let (first, idle) = room.enter(Use::Own).await.unwrap();
        assert_eq!(idle, None);
        first.put_back(Use::Own, "own");
        let (second, idle) = room.enter(Use::Own).await.unwrap();
        assert_eq!(idle, Some("own"));
        let (_third, idle) = room.enter(Use::Lent).await.unwrap();
        assert_eq!(idle, Some("two"));
        drop(second);
    }

    /// One value for own statements is in use, and the others are idle and lent.
    async fn nearly_full() -> (Room<&'static str>, Slot<&'static str>) {
        let room = Room::new(4);
        let (own, _) = room.enter(Use::Own).await.unwrap();
        let mut slots = Vec::new();
        for _ in 0..3 {
            slots.push(room.enter(Use::Lent).await.unwrap().0);
        }
        slots.into_iter().for_each(|slot| slot.put_back(Use::Lent, "lent"));
        (room, own)
    }

    #[tokio::test(start_paused = true)]
    async fn a_value_that_comes_back_soon_spares_an_exchange() {
        let (room, own) = nearly_full().await;
        let next = async { room.enter(Use::Own).await.unwrap() };
        let back = async { own.put_back(Use::Own, "own") };
        let ((_slot, idle), ()) = tokio::join!(next, back);
        assert_eq!((idle, room.0.state().lent.len()), (Some("own"), 3));
    }

    #[tokio::test(start_paused = true)]
    async fn values_in_use_keep_an_exchange_waiting_for_a_moment_only() {
        let (room, _own) = nearly_full().await;
        let began = Instant::now();
        let (_second, idle) = room.enter(Use::Own).await.unwrap();
        assert_eq!((idle, room.0.state().lent.len()), (None, 2));
        assert_eq!(began.elapsed().as_millis() / 5, SOON.as_millis() / 5);
        let (_third, _) = room.enter(Use::Own).await.unwrap();
        assert_eq!((room.0.state().lent.len(), began.elapsed() >= SOON + EXCHANGE), (1, true));
    }
}
