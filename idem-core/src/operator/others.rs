//! Outboxes, calls, claims, operations, and the roles of the database.

use serde::{Deserialize, Deserializer, Serialize};
use uuid::Uuid;

use crate::store::{KnownHandler, OutboxId, Page, Row, Value};
use crate::{Error, Key, Store};

use super::questions;
use super::{Count, Operator, Time, failed, nearest};

/// A message of an outbox that waits or is dead.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Outgone {
    /// Its id.
    pub id: i64,
    /// Where it is published to.
    pub to: String,
    /// Its key, if it has one.
    #[serde(deserialize_with = "key_text")]
    pub key: Option<String>,
    /// When it was staged.
    pub created_at: Time,
    /// When its relay gave it up; `None`: it waits.
    pub died_at: Option<Time>,
    /// How often it was published in vain.
    pub attempts: u32,
    /// The error of the last attempt.
    pub error: String,
}

/// What has become of a claim that was to be forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Forgotten {
    /// It is gone: a delivery of the message now runs again, unless it is too old.
    #[non_exhaustive]
    Done {
        /// When the message was processed.
        processed_at: Time,
    },
    /// There is none.
    NoClaim,
    /// The message is in the inbox, in the row with this id: replay or discard that.
    InInbox(i64),
}

/// What an operator has done with one message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Operation {
    /// Its number.
    pub id: i64,
    /// When it was done.
    pub at: Time,
    /// `replayed`, `replayed by force`, `replayed under the key ..`, `replayed for new keys`, `discarded`, `answered`, `called again`,
    /// `forgotten` or `staged again`.
    pub action: String,
    /// Who has done it: what the program has said.
    pub actor: String,
    /// As which role of the database; empty on SQLite.
    pub role: String,
    /// The same in all operations of one command.
    pub command: Uuid,
    /// The consumer of the message; `None` if its handler is not in the database any more, or if it was in an outbox.
    pub consumer: Option<String>,
    /// Its handler.
    pub handler: Option<String>,
    /// Its outbox.
    pub outbox: Option<String>,
    /// The id of its row; `None` if it had none.
    pub row: Option<i64>,
    /// Its key, before the operation.
    #[serde(deserialize_with = "key_text")]
    pub key: Option<String>,
    /// Why it was dead.
    pub reason: Option<String>,
    /// The error of its last attempt.
    pub error: Option<String>,
    /// The number of its failed attempts.
    pub attempts: Option<u32>,
}

impl<S: Store> Operator<S> {
    /// The outbox with this name. It is not registered, as a relay would do with a misspelled name.
    async fn outbox(&self, name: &str) -> Result<OutboxId, Error> {
        let all = self.outboxes(Count::AtLeast).await?;
        if let Some(outbox) = all.iter().find(|outbox| outbox.name == name) {
            return Ok(outbox.id());
        }
        let remedy = nearest(name, all.into_iter().map(|outbox| outbox.name).collect());
        Err(Error::Config(format!("no outbox {name:?} in this database. {remedy}")))
    }

    /// Returns one page of the dead letters of an outbox, or of its messages that wait, newest first.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no such outbox, with the nearest names.
    pub async fn outgoing(&self, outbox: &str, waiting: bool, page: Page) -> Result<Vec<Outgone>, Error> {
        self.outbox(outbox).await?;
        let (before, limit) = (page.before.unwrap_or(i64::MAX), i64::from(page.limit));
        self.ask(&questions::outgoing(waiting), &[outbox.into(), before.into(), limit.into()]).await
    }

    /// Stages dead letters of an outbox again, under the same message ids and with all their attempts, behind all other messages
    /// of their keys. Returns the ids of those for which it is done.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no such outbox, with the nearest names.
    pub async fn replay_outgoing(&self, outbox: &str, ids: &[i64]) -> Result<Vec<i64>, Error> {
        let staged = self.remove_outgoing(outbox, ids, true).await?;
        self.store.facts().notifier.notify();
        Ok(staged)
    }

    /// Deletes dead letters of an outbox permanently. Returns the ids of those for which it is done.
    ///
    /// # Errors
    /// [`Error::Config`] if there is no such outbox, with the nearest names.
    pub async fn discard_outgoing(&self, outbox: &str, ids: &[i64]) -> Result<Vec<i64>, Error> {
        self.remove_outgoing(outbox, ids, false).await
    }

    async fn remove_outgoing(&self, outbox: &str, ids: &[i64], again: bool) -> Result<Vec<i64>, Error> {
        let what = if again { "replay dead letters of an outbox" } else { "discard dead letters of an outbox" };
        let outbox = self.outbox(outbox).await?;
        let removed = self.store.remove_dead_outgoing(outbox, ids, again, &self.by).await;
        removed.map_err(|fault| failed(what, fault))
    }

    /// Returns one page of the rows whose external call may have had an effect, newest first: those whose call has begun and has no
    /// result, and unresolved dead letters. A call that is under way at this moment is among them.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn calls(&self, page: Page) -> Result<Vec<Row>, Error> {
        let (_, handlers) = self.matching(None).await?;
        let (before, limit) = (page.before.unwrap_or(i64::MAX), i64::from(page.limit));
        let ids: Vec<i64> = self.ask(&questions::calls(), &[handlers.into(), before.into(), limit.into()]).await?;
        self.read(&ids, false).await
    }

    /// Deletes the claim of a processed message, so that a later delivery of it runs again; its effects are then written again,
    /// unless its handler checks for them. A message that is in the inbox keeps its claim.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn forget(&self, handler: &KnownHandler, key: &Key) -> Result<Forgotten, Error> {
        let of_key = [i64::from(handler.id.0).into(), Value::from(key.as_bytes().to_vec())];
        let by = [Value::from(self.by.command.as_bytes().to_vec()), self.by.actor.as_str().into()];
        let gone: Vec<Time> = self.ask(&questions::forget(), &[&of_key[..], &by].concat()).await?;
        if let Some(processed_at) = gone.first() {
            return Ok(Forgotten::Done { processed_at: *processed_at });
        }
        let rows = self.rows_of(handler, key).await?;
        Ok(rows.first().map_or(Forgotten::NoClaim, |row| Forgotten::InInbox(*row)))
    }

    /// Returns one page of what operators have done within 90 days, newest first; with a command, only what belongs to it.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn operations(&self, command: Option<Uuid>, page: Page) -> Result<Vec<Operation>, Error> {
        let which = "($3 IS NULL OR n.consumer = $3) AND ($4 IS NULL OR {uuid o.command} = $4)";
        let command = command.map(|command| command.simple().to_string());
        let (before, limit) = (page.before.unwrap_or(i64::MAX), i64::from(page.limit));
        let values: [Value; 4] = [before.into(), limit.into(), self.consumer.clone().into(), command.into()];
        self.ask(&questions::operations(which), &values).await
    }

    /// Deletes the claims that are older than the retention of their handler, as each worker does once a minute. Returns how many;
    /// zero also if another process does so at this moment.
    ///
    /// # Errors
    /// Those of all methods.
    pub async fn prune(&self) -> Result<u64, Error> {
        self.store.prune().await.map_err(|fault| failed("prune the claims", fault))
    }
}

/// The text of a key that was read in hexadecimal; `None` if it is empty.
fn key_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let digits = Option::<String>::deserialize(deserializer)?.filter(|digits| !digits.is_empty());
    Ok(digits.map(|digits| key_of(&digits).map_or(digits, |key| key.to_string())))
}

/// The key with these bytes in hexadecimal.
pub(super) fn key_of(digits: &str) -> Option<Key> {
    Key::stored(&hex::decode(digits).ok()?).ok()
}

/// SQL that makes four roles for PostgreSQL and grants each the least that it needs in this schema: `idem_migrator` creates the
/// tables, `idem_worker` runs workers and relays, `idem_operator` does all that [`Operator`] can, and `idem_viewer` only reads.
pub fn roles(schema: &str) -> String {
    let schema = format!("\"{}\"", schema.replace('"', "\"\""));
    let tables = |names: &[&str]| names.iter().map(|name| format!("{schema}.{name}")).collect::<Vec<_>>().join(", ");
    let inserted = tables(&["operations", "processed_messages", "outbox_messages", "pruner"]);
    let updated = tables(&["inbox_messages", "processed_messages", "handlers", "pruner", "outbox_dead"]);
    let deleted = tables(&["inbox_messages", "processed_messages", "replies", "outbox_dead", "operations", "workers"]);
    format!(
        "-- As a superuser, or as the owner of the database. A person or a service gets a role by: GRANT idem_viewer TO anna;\n\
         CREATE ROLE idem_migrator NOLOGIN;\n\
         CREATE ROLE idem_worker NOLOGIN;\n\
         CREATE ROLE idem_operator NOLOGIN;\n\
         CREATE ROLE idem_viewer NOLOGIN;\n\
         \n\
         -- The migrator owns the schema, and runs `idem migrate`. Where services run already, leave these two out: their role\n\
         -- owns the schema, and would lose it.\n\
         CREATE SCHEMA IF NOT EXISTS {schema} AUTHORIZATION idem_migrator;\n\
         ALTER SCHEMA {schema} OWNER TO idem_migrator;\n\
         \n\
         -- The rest once the tables are there.\n\
         GRANT USAGE ON SCHEMA {schema} TO idem_worker, idem_operator, idem_viewer;\n\
         GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO idem_worker, idem_operator, idem_viewer;\n\
         GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO idem_worker;\n\
         GRANT SELECT ON ALL SEQUENCES IN SCHEMA {schema} TO idem_worker, idem_operator, idem_viewer;\n\
         GRANT INSERT ON {inserted} TO idem_operator;\n\
         GRANT UPDATE ON {updated} TO idem_operator;\n\
         GRANT DELETE ON {deleted} TO idem_operator;\n"
    )
}
