//! The connections of a store, which its workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use crate::Error;

/// The fewest connections of a store on which a relay can run.
pub(crate) const FOR_A_RELAY: usize = 4;

/// Counts how many connections the workers of a store can use at once. Clones count together.
#[derive(Debug, Clone)]
pub struct ConnectionShares {
    available: usize,
    wanted: Arc<AtomicUsize>,
}

impl ConnectionShares {
    /// No worker yet, and a store with so many connections.
    pub fn new(available: usize) -> Self {
        Self { available, wanted: Arc::default() }
    }

    /// Adds a worker that can use `connections` at once, until the result is dropped. The workers of a store wait for each other
    /// where it has fewer.
    pub fn add(&self, connections: usize) -> ConnectionShare {
        self.wanted.fetch_add(connections, Relaxed);
        ConnectionShare { all: self.clone(), connections }
    }

    /// Adds a relay that can use `connections` at once, until the result is dropped.
    ///
    /// # Errors
    /// [`Error::Config`] if there are too few connections for one; the text names the fix.
    pub fn add_relay(&self, connections: usize) -> Result<ConnectionShare, Error> {
        match self.available >= FOR_A_RELAY {
            true => Ok(self.add(connections)),
            false => Err(Error::Config(format!(
                "a relay needs a store with at least {FOR_A_RELAY} connections, so that its lease is renewed while it reads, and \
                 this one has {}: give the store `.connections({FOR_A_RELAY})` or more",
                self.available
            ))),
        }
    }
}

/// The connections that one worker can use at once, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct ConnectionShare {
    all: ConnectionShares,
    connections: usize,
}

impl ConnectionShare {
    /// How many connections all workers that are there now can use at once, if the store has fewer: they then wait for
    /// each other.
    pub fn wanted(&self) -> Option<usize> {
        let wanted = self.all.wanted.load(Relaxed);
        (wanted > self.all.available).then_some(wanted)
    }
}

impl Drop for ConnectionShare {
    fn drop(&mut self) {
        self.all.wanted.fetch_sub(self.connections, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_are_counted_while_they_run() {
        let shares = ConnectionShares::new(30);
        let first = shares.add(25);
        let second = shares.clone().add(10);
        assert_eq!((first.wanted(), second.wanted()), (Some(35), Some(35)));
        drop(first);
        assert_eq!(shares.add(5).wanted(), None);
    }
}
