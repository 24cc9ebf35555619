//! Reserved connections.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections reserved for one worker, and released on drop.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    _connections: OwnedSemaphorePermit,
}

impl Reservation {
    /// Reserves `connections` of those that are `left`. `None` if there are too few; nothing is reserved then.
    pub fn of(left: &Arc<Semaphore>, connections: usize) -> Option<Self> {
        let connections = u32::try_from(connections).ok()?;
        let permit = left.clone().try_acquire_many_owned(connections).ok()?;
        Some(Self { _connections: permit })
    }
}
