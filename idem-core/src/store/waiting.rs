//! Handlers that have inbox rows, and what becomes of the rows where no worker has the handler.

use std::time::Duration;

/// For how long after a worker had a handler its inbox rows are taken to wait for it: a day. A worker of the same consumer
/// that does not have the handler starts with a warning then, and is refused later.
pub const SEEN_RECENTLY: Duration = Duration::from_secs(24 * 60 * 60);

/// A handler that has inbox rows, parked or dead.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    /// Its name.
    pub handler: String,
    /// How long ago a worker had it: a minute or less where one has it now.
    pub seen: Duration,
}

/// SQL for the inbox rows of a handler that no worker has any more, with the names of tables, consumer and handler in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cures {
    /// Gives the handler the name of the one that has taken its place, with claims and rows. It fails, and changes
    /// nothing, where that one has claims or rows of its own already.
    pub rename: String,
    /// Gives the handler, with claims and rows, to the consumer `NEW_CONSUMER`.
    pub part: String,
    /// Makes dead letters of its parked rows, which can then be discarded as the others.
    pub bury: String,
}

impl Cures {
    /// For a database whose tables have these names, and whose clock is `now`.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn new(table: impl Fn(&str) -> String, now: &str, consumer: &str, handler: &str, new: &str) -> Self {
        let (handlers, claims, inbox) = (table("handlers"), table("processed_messages"), table("inbox_messages"));
        let [consumer, handler, new] = [consumer, handler, new].map(literal);
        let old = format!("consumer = {consumer} AND name = {handler}");
        // The worker that was refused or warned has registered the new name: it has to go, if nothing belongs to it.
        let rename = format!(
            "DELETE FROM {handlers} AS h WHERE consumer = {consumer} AND name = {new} AND pruned_through IS NULL \
             AND NOT EXISTS (SELECT 1 FROM {claims} AS c WHERE c.handler_id = h.id) \
             AND NOT EXISTS (SELECT 1 FROM {inbox} AS i WHERE i.handler_id = h.id); \
             UPDATE {handlers} SET name = {new} WHERE {old}"
        );
        let part = format!("UPDATE {handlers} SET consumer = 'NEW_CONSUMER' WHERE {old}");
        let bury = format!(
            "UPDATE {inbox} SET state = 'dead', reason = 'permanent', died_at = {now}, token = NULL \
             WHERE state = 'parked' AND handler_id = (SELECT id FROM {handlers} WHERE {old})"
        );
        Self { rename, part, bury }
    }
}

/// A text as a literal of standard SQL.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
