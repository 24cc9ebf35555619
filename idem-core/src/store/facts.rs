//! What a store is, and what its clones share in a process.

use std::iter;

use crate::operator::command_line;
use crate::outbox::Notifier;
use crate::worker::Roster;

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
    /// The workers and relays of this process.
    pub roster: Roster,
    /// The text before the name of a table in a statement, and the text after it.
    pub around_table: [String; 2],
    /// The database's clock in a statement.
    pub now: &'static str,
    /// The schema of its tables, if the command `idem` takes another one by default.
    pub schema: Option<String>,
}

impl StoreFacts {
    /// The facts of a store with so many connections.
    pub fn new(name: String, connections: usize, around_table: [String; 2], now: &'static str) -> Self {
        let connections = ConnectionShares::new(connections);
        let (notifier, roster) = (Notifier::default(), Roster::default());
        Self { name, connections, notifier, roster, around_table, now, schema: None }
    }

    /// Returns the name of a table as it stands in a statement.
    pub fn table(&self, name: &str) -> String {
        let [before, behind] = &self.around_table;
        format!("{before}{name}{behind}")
    }

    /// Returns a call of the command `idem` on this database, for the end of a log line: pasted into a shell, it shows what the line
    /// is about.
    pub(crate) fn command(&self, command: &[&str], arguments: &[&str]) -> String {
        let schema = self.schema.as_ref().map(|name| format!("--schema={name}"));
        let words = iter::once("idem").chain(schema.as_deref()).chain(command.iter().copied());
        command_line(&words.collect::<Vec<_>>(), arguments)
    }

    /// Returns the command that shows a row of the inbox, or all dead letters if the row is not known.
    pub(crate) fn show_row(&self, id: Option<i64>) -> String {
        match id {
            Some(id) => self.command(&["dead", "show"], &[&id.to_string()]),
            None => self.command(&["dead", "list"], &[]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_can_be_pasted_whatever_is_in_it() {
        let mut facts = StoreFacts::new(String::new(), 1, Default::default(), "now()");
        assert_eq!(facts.show_row(Some(7)), "idem dead show 7");
        assert_eq!(facts.show_row(None), "idem dead list");
        let why = |facts: &StoreFacts, key: &str| facts.command(&["why"], &["billing/paid", key]);
        assert_eq!(why(&facts, "a b'c; rm *"), r"idem why billing/paid 'a b'\''c; rm *'");
        assert_eq!(why(&facts, "--json"), "idem why -- billing/paid --json");
        facts.schema = Some("my shop".to_owned());
        assert_eq!(why(&facts, "e-7"), "idem '--schema=my shop' why billing/paid e-7");
    }
}
