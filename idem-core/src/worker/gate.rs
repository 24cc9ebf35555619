//! The gate of a process: a suspect runs alone.

use std::sync::{Arc, LazyLock};

use tokio::sync::{OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

static PROCESS: LazyLock<Gate> = LazyLock::new(Gate::new);

/// What keeps a suspect apart from all other work of a process: a message on which a process may have died runs only
/// while nothing else runs or holds a row there, over all its workers, so that no innocent neighbour is blamed.
///
/// All workers of a process share one gate. Tests that play several processes in one give each a gate of its own.
#[derive(Debug, Clone)]
pub struct Gate(Arc<RwLock<()>>);

impl Gate {
    /// A gate of its own, for a worker that plays a process of its own.
    #[allow(clippy::new_without_default, reason = "the default gate is that of the process, not a new one")]
    pub fn new() -> Self {
        Self(Arc::new(RwLock::new(())))
    }

    /// The gate of this process.
    pub fn process() -> Self {
        PROCESS.clone()
    }

    /// Room for an ordinary run. Waits while a suspect runs or is about to: the lock is fair, so that a suspect which
    /// waits stops new starts.
    pub(crate) async fn shared(&self) -> OwnedRwLockReadGuard<()> {
        self.0.clone().read_owned().await
    }

    /// The process for oneself.
    pub(crate) async fn alone(&self) -> OwnedRwLockWriteGuard<()> {
        self.0.clone().write_owned().await
    }
}
