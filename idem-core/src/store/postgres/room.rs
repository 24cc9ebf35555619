//! The slots of a pool, including idle connections.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{AcquireError, Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, sleep_until};

use super::limits::Use;

/// The least time between two exchanges of an idle value for one of the other use, where values of this use are in use. Each
/// costs the server a login: without this, a worker whose handlers and own statements want more connections together than there
/// are would log in all the time.
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
    /// is none, and no space for a new one, an idle value of the other use is closed: at once if `at_once`, or if no value of
    /// this use is in use; otherwise if none comes back [`SOON`], and not more often than [`EXCHANGE`] says.
    pub(super) async fn enter(&self, of: Use, at_once: bool) -> Result<(Slot<T>, Option<T>), AcquireError> {
        let mut lent = match of {
            Use::Lent => Some(self.0.lent.clone().acquire_owned().await?),
            Use::Own => None,
        };
        let mut permit = self.0.permits.clone().acquire_owned().await?;
        let began = Instant::now();
        loop {
            let due = match self.enter_now(of, began, at_once) {
                Ok((idle, closed)) => {
                    let slot = Slot { room: self.0.clone(), of, back: None, _permits: (permit, lent.take()) };
                    drop(closed);
                    return Ok((slot, idle));
                }
                Err(due) => due,
            };
            match of {
                // A handler may keep it for long.
                Use::Own => self.0.come_back(of, due).await,
                // The other use may have idle values.
                Use::Lent => {
                    drop(permit);
                    self.0.come_back(of, due).await;
                    permit = self.0.permits.clone().acquire_owned().await?;
                }
            }
        }
    }

    /// Takes an idle value, or space for a new one, for which the other value is to be closed. The error is when an exchange is
    /// due.
    fn enter_now(&self, of: Use, began: Instant, at_once: bool) -> Result<(Option<T>, Option<T>), Instant> {
        let mut state = self.0.state();
        let mut closed = None;
        let idle = state.idle(of).pop();
        if idle.is_none() && state.is_full(self.0.size) {
            match state.exchange_due(of, began) {
                Some(due) if !at_once && due > Instant::now() => return Err(due),
                _ => closed = state.exchange(of.other()),
            }
        }
        *state.used(of) += 1;
        let more = !state.idle(of).is_empty() || !state.is_full(self.0.size);
        drop(state);
        if more {
            self.0.back(of).notify_one();
        }
        Ok((idle, closed))
    }

    /// Closes all idle values.
    pub(super) fn empty(&self) {
        let mut state = self.0.state();
        let closed = (std::mem::take(&mut state.lent), std::mem::take(&mut state.own));
        drop(state);
        drop(closed);
        self.0.space();
    }
}

impl<T> Shared<T> {
    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a value of this use, or until then.
    async fn come_back(&self, of: Use, due: Instant) {
        tokio::select! {
            () = self.back(of).notified() => {}
            () = sleep_until(due) => {}
        }
    }

    /// Tells that there is space for a value of either use. Each that finds some tells the next one.
    fn space(&self) {
        self.lent_back.notify_one();
        self.own_back.notify_one();
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
        // The bound is for those whose turn others have taken.
        let due = self.exchanged.map_or(soon, |at| soon.max(at + EXCHANGE)).min(soon + EXCHANGE);
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
        let idle = self.room.state().idle(of).pop();
        if idle.is_some() {
            self.room.space();
        }
        idle
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
            None => self.room.space(),
        }
    }
}

#[cfg(test)]
mod tests;
