//! The connections of a store, which its workers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

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

    /// Adds a worker that can use `connections` at once, until the result is dropped.
    pub fn add(&self, connections: usize) -> ConnectionShare {
        let before = self.wanted.fetch_add(connections, Relaxed);
        ConnectionShare { all: self.clone(), connections, together: before.saturating_add(connections) }
    }
}

/// The connections that one worker can use at once, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct ConnectionShare {
    all: ConnectionShares,
    connections: usize,
    together: usize,
}

impl ConnectionShare {
    /// How many connections this worker and those that were there before it can use at once, if the store has fewer:
    /// they then wait for each other.
    pub fn wanted(&self) -> Option<usize> {
        (self.together > self.all.available).then_some(self.together)
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
        assert_eq!((first.wanted(), second.wanted()), (None, Some(35)));
        drop(first);
        assert_eq!(shares.add(5).wanted(), None);
    }
}
