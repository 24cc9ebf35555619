//! The handlers that the tables know, and SQL for them if no worker has the handler.

use std::time::Duration;

use uuid::Uuid;

use super::{HandlerId, Transactions};

/// How long the inbox rows of a handler wait for a worker after one last had the handler: a day. Until then, a worker
/// of the same consumer without the handler starts with a warning; afterwards it refuses to start.
pub const SEEN_RECENTLY: Duration = Duration::from_secs(24 * 60 * 60);

/// A handler that a worker has registered, and what the tables have of it.
// Exhaustive: a store makes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownHandler {
    /// Its number.
    pub id: HandlerId,
    /// The name of its consumer.
    pub consumer: String,
    /// Its name.
    pub name: String,
    /// The names that it had before.
    pub formerly: Vec<String>,
    /// The time since a worker last had it: a minute or less while one has it.
    pub seen: Duration,
    /// How long its processed claims are kept: the greatest value with which a store has registered it, unless an operator has
    /// changed it. `None`: forever.
    pub retention: Option<Duration>,
    /// Whether it has claims now, so that copies of its messages are recognized.
    pub has_claims: bool,
    /// Whether it has claims, has had some that were pruned, or [processes](HandlerMark::Processes) messages without claims.
    pub has_processed: bool,
    /// Whether it has inbox rows, scheduled or dead.
    pub has_rows: bool,
    /// The namespace of its external calls, if it is [marked](HandlerMark::Calls).
    pub namespace: Option<Uuid>,
}

/// What is recorded about a handler.
// Exhaustive: a store that ignored a new mark would be wrong, so it must not compile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HandlerMark {
    /// A worker has it now. This never waits for another worker that does the same: it skips a handler whose row another worker
    /// has locked, or has updated within the last half minute.
    Seen,
    /// It processes messages, which may leave no claim. Recorded before the first of them.
    Processes,
    /// It makes an external call. The namespace of its calls is a random value, which is stored when this is first recorded, and
    /// never changes. It ends with the registration of the handler, and no other handler ever has it. The first keys of
    /// messages are derived from it, so it has to be part of every backup.
    Calls,
}

/// SQL with which an operator can deal with what belongs to a handler that no worker has any more, with all names filled in.
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
    /// The statements for a handler of this consumer in the database of a store. `new`: the handler of the same consumer that has
    /// replaced it, if one has.
    pub fn of(store: &impl Transactions, consumer: &str, handler: &str, new: &str) -> Self {
        let facts = store.facts();
        let [handlers, claims, inbox] =
            ["handlers", "processed_messages", "inbox_messages"].map(|table| facts.table(table));
        let now = facts.now;
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
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
