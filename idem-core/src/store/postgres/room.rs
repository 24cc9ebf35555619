//! The slots of a pool, including idle connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::limits::Use;

/// A limited number of slots. Clones share them.
pub(super) struct Room<T>(Arc<Shared<T>>);

struct Shared<T> {
    size: usize,
    permits: Arc<Semaphore>,
    /// One slot less: handlers that run for long must not keep the extension of their leases from getting one.
    lent: Arc<Semaphore>,
    state: Mutex<State<T>>,
}

struct State<T> {
    used: usize,
    // Used as a stack, so that few stay warm and those opened for a burst are seldom used.
    lent: Vec<T>,
    own: Vec<T>,
}

/// A slot in use. Released when it is dropped.
pub(super) struct Slot<T> {
    room: Arc<Shared<T>>,
    back: Option<(Use, T)>,
    // Dropped last, so that the next waiter finds the slot free.
    _permits: (OwnedSemaphorePermit, Option<OwnedSemaphorePermit>),
}

impl<T> Room<T> {
    pub(super) fn new(size: usize) -> Self {
        let state = Mutex::new(State { used: 0, lent: Vec::new(), own: Vec::new() });
        let (permits, lent) = (Arc::new(Semaphore::new(size)), Arc::new(Semaphore::new(size.saturating_sub(1).max(1))));
        Self(Arc::new(Shared { size, permits, lent, state }))
    }

    /// Waits for a slot, of which one is never lent, and returns it with an idle value for this use, if any. If there
    /// is none, and no space for a new one, an idle value of the other use is closed.
    pub(super) async fn enter(&self, of: Use) -> Result<(Slot<T>, Option<T>), AcquireError> {
        let lent = match of {
            Use::Lent => Some(self.0.lent.clone().acquire_owned().await?),
            Use::Own => None,
        };
        let permit = self.0.permits.clone().acquire_owned().await?;
        let mut state = self.0.state();
        state.used += 1;
        let slot = Slot { room: self.0.clone(), back: None, _permits: (permit, lent) };
        let idle = state.idle(of).pop();
        let full = state.used + state.lent.len() + state.own.len() > self.0.size;
        let closed = if idle.is_none() && full { state.oldest(of.other()) } else { None };
        drop(state);
        drop(closed);
        Ok((slot, idle))
    }

    /// Closes all idle values.
    pub(super) fn empty(&self) {
        let mut state = self.0.state();
        let closed = (std::mem::take(&mut state.lent), std::mem::take(&mut state.own));
        drop(state);
        drop(closed);
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> State<T> {
    fn idle(&mut self, of: Use) -> &mut Vec<T> {
        match of {
            Use::Lent => &mut self.lent,
            Use::Own => &mut self.own,
        }
    }

    fn oldest(&mut self, of: Use) -> Option<T> {
        let idle = self.idle(of);
        (!idle.is_empty()).then(|| idle.remove(0))
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
        state.used -= 1;
        if let Some((of, idle)) = self.back.take() {
            state.idle(of).push(idle);
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
}
