//! Handlers with inbox rows or claims, and SQL for them if no worker has the handler.

use std::time::Duration;

/// How long the inbox rows of a handler wait for a worker after one last had the handler: a day. Until then, a worker
/// of the same consumer without the handler starts with a warning; afterwards it refuses to start.
pub const SEEN_RECENTLY: Duration = Duration::from_secs(24 * 60 * 60);

/// A handler that has inbox rows, scheduled or dead.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HandlerRows {
    /// The name of the handler.
    pub handler: String,
    /// The time since a worker last had it: a minute or less while one has it.
    pub seen: Duration,
    /// The names that it had before.
    pub formerly: Vec<String>,
}

impl HandlerRows {
    /// A handler whose last worker had it this long ago.
    pub fn new(handler: impl Into<String>, seen: Duration) -> Self {
        Self { handler: handler.into(), seen, formerly: Vec::new() }
    }
}

/// Replaces the name of a handler by the one under which a worker with the handlers `ours` has it.
pub(crate) fn as_ours(handler: &mut String, formerly: &[String], ours: &[&str]) {
    if !ours.contains(&handler.as_str())
        && let Some(name) = ours.iter().find(|name| formerly.iter().any(|former| former == *name))
    {
        *handler = (*name).to_owned();
    }
}

/// A handler that has claims, has had some that were pruned, or has processed messages without claims.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// The name of the handler.
    pub handler: String,
    /// The time since a worker last had it: a minute or less while one has it.
    pub seen: Duration,
    /// Whether it has claims now, so that copies of its messages are recognized.
    pub has_claims: bool,
    /// The names that it had before.
    pub formerly: Vec<String>,
}

impl History {
    /// A handler that has processed messages, and whose last worker had it this long ago.
    pub fn new(handler: impl Into<String>, seen: Duration, has_claims: bool) -> Self {
        let handler = handler.into();
        Self { handler, seen, has_claims, formerly: Vec::new() }
    }
}

/// SQL statements for the inbox rows of a handler that no worker has any more, with all names filled in. A store
/// outside this crate starts with `Remedies::default()`, which is empty, and sets each field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Remedies {
    /// Moves the claims of the handler to another one of the same consumer, which has some of its own: the handler is the other
    /// one's former name. Where both have a claim, the other one's wins. Nothing is moved while the handler has rows in the inbox,
    /// dead letters included, whose claims would be left behind.
    pub join: String,
    /// Moves the handler, with its claims and rows, to the consumer `NEW_CONSUMER`.
    pub part: String,
    /// Turns its scheduled rows into dead letters, which can then be discarded like any other.
    pub dead_letter: String,
}

impl Remedies {
    /// Creates the statements for a database with these table names and with the clock `now`.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn new(table: impl Fn(&str) -> String, now: &str, [consumer, handler, new]: [&str; 3]) -> Self {
        let (handlers, claims, inbox) = (table("handlers"), table("processed_messages"), table("inbox_messages"));
        let [consumer, handler, new] = [consumer, handler, new].map(literal);
        let old = format!("consumer = {consumer} AND name = {handler}");
        let new = format!("consumer = {consumer} AND name = {new}");
        let [from, to] = [&old, &new].map(|of| format!("(SELECT id FROM {handlers} WHERE {of})"));
        let part = format!("UPDATE {handlers} SET consumer = 'NEW_CONSUMER' WHERE {old}");
        let dead_letter = format!(
            "UPDATE {inbox} SET state = 'dead', reason = 'permanent', died_at = {now}, locked_by = NULL \
             WHERE state <> 'dead' AND handler_id = (SELECT id FROM {handlers} WHERE {old})"
        );
        // A copy of a message whose claim was pruned is too old under either name.
        let empty = format!("NOT EXISTS (SELECT 1 FROM {inbox} AS i WHERE i.handler_id = {from})");
        let join = format!(
            "UPDATE {claims} AS c SET handler_id = {to} WHERE handler_id = {from} AND processed_at IS NOT NULL AND {empty} \
             AND NOT EXISTS (SELECT 1 FROM {claims} AS k WHERE k.handler_id = {to} AND k.key = c.key); \
             DELETE FROM {claims} WHERE handler_id = {from} AND processed_at IS NOT NULL AND {empty}; \
             UPDATE {handlers} SET pruned_through = (SELECT max(pruned_through) FROM {handlers} \
             WHERE {old} OR {new}) WHERE {new} AND {empty}; \
             UPDATE {handlers} SET pruned_through = NULL WHERE {old} AND {empty}"
        );
        Self { join, part, dead_letter }
    }
}

/// Quotes a text as a literal of standard SQL.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
