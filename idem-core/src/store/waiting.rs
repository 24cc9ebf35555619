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
}

impl HandlerRows {
    /// A handler whose last worker had it this long ago.
    pub fn new(handler: impl Into<String>, seen: Duration) -> Self {
        Self { handler: handler.into(), seen }
    }
}

/// A handler that has claims, has had some that were pruned, has processed messages without claims, or has latest
/// versions.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct History {
    /// The name of the handler.
    pub handler: String,
    /// The time since a worker last had it: a minute or less while one has it.
    pub seen: Duration,
    /// Whether it has claims now, so that copies of its messages are recognized.
    pub has_claims: bool,
    /// Whether it has latest versions. Known only once [`Claims::latest_versions`](super::Claims::latest_versions) has
    /// succeeded, since no other worker needs their table.
    pub has_versions: bool,
    /// Whether it has processed messages, as its claims, the pruning cutoff or
    /// [`Claims::record_history`](super::Claims::record_history) show. A handler that has nothing but latest versions may
    /// have processed none: they can be filled by hand, or come from a merge.
    pub has_processed: bool,
}

impl History {
    /// A handler that has processed messages, and whose last worker had it this long ago.
    pub fn new(handler: impl Into<String>, seen: Duration, has_claims: bool) -> Self {
        Self { handler: handler.into(), seen, has_claims, has_versions: false, has_processed: true }
    }
}

/// SQL statements for the inbox rows of a handler that no worker has any more, with all names filled in. A store
/// outside this crate starts with `Cures::default()`, which is empty, and sets each field.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cures {
    /// Renames the handler, with its claims, rows and latest versions, to the one that replaces it. Fails without any change
    /// if the replacement already has claims, rows or versions, or has processed messages without claims.
    pub rename: String,
    /// Moves the latest versions of the handler to the one that replaces it, which may have some of its own: of each entity
    /// the higher version wins. Changes nothing if there is no handler with the new name. Empty if the table of latest
    /// versions is not known to exist.
    pub merge: String,
    /// Deletes the latest versions of the handler. Empty if their table is not known to exist.
    pub forget: String,
    /// Moves the handler, with its claims, rows and latest versions, to the consumer `NEW_CONSUMER`.
    pub part: String,
    /// Turns its scheduled rows into dead letters, which can then be discarded like any other.
    pub dead_letter: String,
}

impl Cures {
    /// Creates the statements for a database with these table names and with the clock `now`. `versions`: it is known to have
    /// the table of latest versions.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn new(
        table: impl Fn(&str) -> String,
        now: &str,
        versions: bool,
        [consumer, handler, new]: [&str; 3],
    ) -> Self {
        let (handlers, claims, inbox) = (table("handlers"), table("processed_messages"), table("inbox_messages"));
        let latest = table("latest_versions");
        let has_versions = match versions {
            true => format!("AND NOT EXISTS (SELECT 1 FROM {latest} AS v WHERE v.handler_id = h.id) "),
            false => String::new(),
        };
        let [consumer, handler, new] = [consumer, handler, new].map(literal);
        let old = format!("consumer = {consumer} AND name = {handler}");
        // The worker that failed or warned has registered the new name, whose row is deleted here if nothing belongs to
        // it.
        let rename = format!(
            "DELETE FROM {handlers} AS h WHERE consumer = {consumer} AND name = {new} AND pruned_through IS NULL \
             AND NOT EXISTS (SELECT 1 FROM {claims} AS c WHERE c.handler_id = h.id) {has_versions}\
             AND NOT EXISTS (SELECT 1 FROM {inbox} AS i WHERE i.handler_id = h.id); \
             UPDATE {handlers} SET name = {new} WHERE {old}"
        );
        let part = format!("UPDATE {handlers} SET consumer = 'NEW_CONSUMER' WHERE {old}");
        let dead_letter = format!(
            "UPDATE {inbox} SET state = 'dead', reason = 'permanent', died_at = {now}, token = NULL \
             WHERE state = 'scheduled' AND handler_id = (SELECT id FROM {handlers} WHERE {old})"
        );
        let (mut merge, mut forget) = (String::new(), String::new());
        if versions {
            forget = format!("DELETE FROM {latest} WHERE handler_id = (SELECT id FROM {handlers} WHERE {old})");
            // An operator may put another name in the place of the new one. If no handler has it, nothing was moved.
            merge = format!(
                "INSERT INTO {latest} AS latest (handler_id, entity, version) SELECT n.id, v.entity, v.version \
                 FROM {latest} AS v, {handlers} AS o, {handlers} AS n WHERE v.handler_id = o.id \
                 AND o.consumer = {consumer} AND o.name = {handler} AND n.consumer = {consumer} AND n.name = {new} \
                 ON CONFLICT (handler_id, entity) DO UPDATE SET version = excluded.version \
                 WHERE latest.version < excluded.version; {forget} AND EXISTS (SELECT 1 FROM {handlers} \
                 WHERE consumer = {consumer} AND name = {new} AND name <> {handler})"
            );
        }
        Self { rename, merge, forget, part, dead_letter }
    }
}

/// Quotes a text as a literal of standard SQL.
#[cfg(any(feature = "postgres", feature = "sqlite"))]
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}
