//! Codec preparations for rows of the inbox, which run outside the slots for running rows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_channel::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::store::{HandlerId, Row};

/// The rows whose codec prepares, until a task takes them, and the room for such rows.
pub(crate) struct Preparations {
    wanted: (Sender<WantedPreparation>, Receiver<WantedPreparation>),
    room: Mutex<HashMap<HandlerId, Arc<Semaphore>>>,
}

/// A row that waits for its codec. It keeps its token, and none of its starts is counted for this run.
pub(crate) struct WantedPreparation {
    pub(crate) row: Row,
    pub(crate) tries: usize,
    /// The delay before the next try, if what the codec needs is unavailable.
    pub(crate) wait: Duration,
    pub(crate) room: OwnedSemaphorePermit,
}

/// The maximum that run at once for one handler, because each keeps a message in memory. A row beyond it is tried again
/// later. Each handler has its own, so that a registry that hangs delays only the handlers that need it.
const AT_ONCE: usize = 32;

impl Default for Preparations {
    fn default() -> Self {
        Self { wanted: async_channel::unbounded(), room: Mutex::default() }
    }
}

impl Preparations {
    /// Returns the permit for one more preparation for this handler, if there is one.
    pub(crate) fn room(&self, handler: HandlerId) -> Option<OwnedSemaphorePermit> {
        // The map is consistent at all times.
        let mut room = self.room.lock().unwrap_or_else(PoisonError::into_inner);
        let room = room.entry(handler).or_insert_with(|| Arc::new(Semaphore::new(AT_ONCE)));
        room.clone().try_acquire_owned().ok()
    }

    /// Passes a row to the task that runs preparations.
    pub(crate) fn want(&self, wanted: WantedPreparation) {
        drop(self.wanted.0.try_send(wanted));
    }

    /// Waits for a row. Returns `None` once no more rows run, and none is left. Cancel safe.
    pub(crate) async fn next(&self) -> Option<WantedPreparation> {
        self.wanted.1.recv().await.ok()
    }

    /// Ends the wait for further rows, since no more rows run.
    pub(crate) fn close(&self) {
        self.wanted.0.close();
    }
}
