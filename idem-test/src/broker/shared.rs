//! The state of a broker behind a lock, with a change signal.

use std::sync::{Mutex, PoisonError};

use tokio::sync::watch;

use super::state::State;

/// The state behind a lock. A change wakes all waiters.
#[derive(Default)]
pub(super) struct Shared {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

impl Shared {
    /// Changes the state and signals the change.
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.send_replace(());
        changed
    }

    /// Reads the state without a signal.
    pub(super) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until `ask` returns a value. Cancel safe: there is no await between the answer and the return.
    pub(super) async fn when<T>(&self, mut ask: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let answer = ask(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner));
            if let Some(answer) = answer {
                self.changed.send_replace(());
                return answer;
            }
            // The sender lives in `self`.
            let _ = changed.changed().await;
        }
    }

    /// Waits until the condition holds.
    pub(super) async fn until(&self, mut is_so: impl FnMut(&State) -> bool) {
        self.when(|state| is_so(state).then_some(())).await;
    }
}
