//! Dead letters of messages whose handler has committed, which the database refuses.

use std::sync::Arc;

use async_channel::{Receiver, Sender};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Delivery;
use crate::store::{Identity, Ticket};

/// The dead letters that a task writes as soon as the database accepts them, and the room for such messages.
pub(crate) struct EarlyCommits {
    refused: (Sender<EarlyCommit>, Receiver<EarlyCommit>),
    room: Arc<Semaphore>,
}

/// A message that is dead after this many attempts, since its handler has committed.
pub(crate) struct EarlyCommit {
    pub(crate) delivery: Delivery,
    pub(crate) identity: Identity,
    pub(crate) attempts: u32,
    /// The transaction that it has committed.
    pub(crate) ticket: Ticket,
    pub(crate) room: OwnedSemaphorePermit,
}

/// How many are held in memory.
const MOST: usize = 64;

impl Default for EarlyCommits {
    fn default() -> Self {
        Self { refused: async_channel::unbounded(), room: Arc::new(Semaphore::new(MOST)) }
    }
}

impl EarlyCommits {
    /// Returns the permit to hold one more, if there is one.
    pub(crate) fn room(&self) -> Option<OwnedSemaphorePermit> {
        self.room.clone().try_acquire_owned().ok()
    }

    /// Passes one to the task that writes them. Returns `false` if that task takes no more.
    pub(crate) fn refused(&self, commit: EarlyCommit) -> bool {
        self.refused.0.try_send(commit).is_ok()
    }

    /// Waits for one; `None` once they are closed and all are taken. Cancel safe.
    pub(crate) async fn next(&self) -> Option<EarlyCommit> {
        self.refused.1.recv().await.ok()
    }

    /// Takes no more. Those that were passed before can still be taken.
    pub(crate) fn close(&self) {
        self.refused.0.close();
    }
}
