//! Connections that are set aside.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connections set aside for one worker; given back when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Reservation {
    _connections: OwnedSemaphorePermit,
}

impl Reservation {
    /// Sets `connections` aside of those that are `left`. `None` where there are not that many; then nothing is set aside.
    pub fn of(left: &Arc<Semaphore>, connections: usize) -> Option<Self> {
        let connections = u32::try_from(connections).ok()?;
        let permit = left.clone().try_acquire_many_owned(connections).ok()?;
        Some(Self { _connections: permit })
    }
}
