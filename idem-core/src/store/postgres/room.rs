//! Room for so many connections, those that are idle included.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};

use super::limits::Use;

/// Room for so many of these. Clones share it.
pub(super) struct Room<T>(Arc<Shared<T>>);

struct Shared<T> {
    size: usize,
    permits: Arc<Semaphore>,
    state: Mutex<State<T>>,
}

struct State<T> {
    used: usize,
    // The last one used is the first one used again, so that few stay warm and a burst's others are seldom touched.
    lent: Vec<T>,
    own: Vec<T>,
}

/// A place that is taken: for one that is in use. Given back when it is dropped.
pub(super) struct Slot<T> {
    room: Arc<Shared<T>>,
    back: Option<(Use, T)>,
    // Given back last, so that whoever waits for it finds the place free.
    _permit: OwnedSemaphorePermit,
}

impl<T> Room<T> {
    pub(super) fn new(size: usize) -> Self {
        let state = Mutex::new(State { used: 0, lent: Vec::new(), own: Vec::new() });
        Self(Arc::new(Shared { size, permits: Arc::new(Semaphore::new(size)), state }))
    }

    /// Waits for a place, with what is idle for this use. Where there is none, and no place for a new one, an idle one of
    /// the other use is closed.
    pub(super) async fn enter(&self, of: Use) -> Result<(Slot<T>, Option<T>), AcquireError> {
        let permit = self.0.permits.clone().acquire_owned().await?;
        let mut state = self.0.state();
        state.used += 1;
        let slot = Slot { room: self.0.clone(), back: None, _permit: permit };
        let idle = state.idle(of).pop();
        let full = state.used + state.lent.len() + state.own.len() > self.0.size;
        let closed = if idle.is_none() && full { state.oldest(of.other()) } else { None };
        drop(state);
        drop(closed);
        Ok((slot, idle))
    }

    /// Closes what is idle.
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
    /// What has become idle for this use since the place was taken.
    pub(super) fn idle(&self, of: Use) -> Option<T> {
        self.room.state().idle(of).pop()
    }

    /// Gives the place back, with what was in it.
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
    async fn what_is_idle_counts_and_makes_way_for_the_other_use() {
        let room = Room::new(2);
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
