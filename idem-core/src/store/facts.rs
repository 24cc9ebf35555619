//! What a store is, and what its clones share in a process.

use crate::outbox::Notifier;

use super::ConnectionShares;

/// What the core knows of a store without asking its database. A store makes it once, when it is opened.
#[derive(Debug, Clone)]
// Exhaustive: a store makes it.
pub struct StoreFacts {
    /// The database, for the log, without a password.
    pub name: String,
    /// The connections, which its workers and relays share. The store must keep one for its own statements, so that the leases
    /// of messages whose handlers use all others are extended.
    pub connections: ConnectionShares,
    /// Wakes the relays of this process.
    pub notifier: Notifier,
    /// The text before the name of a table in a statement, and the text after it.
    pub around_table: [String; 2],
    /// The database's clock in a statement.
    pub now: &'static str,
}

impl StoreFacts {
    /// The facts of a store with so many connections.
    pub fn new(name: String, connections: usize, around_table: [String; 2], now: &'static str) -> Self {
        let connections = ConnectionShares::new(connections);
        Self { name, connections, notifier: Notifier::default(), around_table, now }
    }

    /// Returns the name of a table as it stands in a statement.
    pub fn table(&self, name: &str) -> String {
        let [before, behind] = &self.around_table;
        format!("{before}{name}{behind}")
    }
}
