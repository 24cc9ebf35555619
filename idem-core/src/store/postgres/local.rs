//! The messages that a transaction hands to other handlers.

use sqlx::Postgres as Pg;
use sqlx::Row as _;
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;

use crate::store::{LOCAL_CONFLICT, LocalMessage, Unscheduled, envelope};

use super::local_sql::{CONFLICTS, DUPLICATES};
use super::quote::bytes;
use super::rows::each;

/// The messages that a transaction hands to other handlers, in claim order.
pub(super) struct Local {
    rows: Vec<NewRow>,
}

/// A row to be inserted, with its claim.
struct NewRow {
    message: LocalMessage,
    envelope: Vec<u8>,
}

impl NewRow {
    fn key(&self) -> &[u8] {
        self.message.identity.key.as_bytes()
    }

    fn fingerprint(&self) -> &[u8] {
        self.message.identity.fingerprint.as_bytes()
    }
}

impl Local {
    pub(super) fn new(messages: Vec<LocalMessage>) -> Self {
        let row = |message: LocalMessage| NewRow { envelope: envelope::seal(&message.delivery), message };
        Self { rows: messages.into_iter().map(row).collect() }
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The sizes of the rows, which decide whether they can travel in the string of guard and COMMIT.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(|row| row.message.delivery.payload().len() + row.envelope.len())
    }

    /// Returns the values of the statement as literals. Nothing of a message gets into them except hexadecimal digits, which the
    /// types read whatever settings the handler has left.
    pub(super) fn values(&self, lock_wait: u64) -> [String; 8] {
        let array = |value: &dyn Fn(&NewRow) -> String| {
            let values: Vec<String> = self.rows.iter().map(value).collect();
            format!("ARRAY[{}]", values.join(", "))
        };
        [
            array(&|row| row.message.identity.handler.0.to_string()),
            array(&|row| bytes(row.key())),
            array(&|row| bytes(row.fingerprint())),
            array(&|row| bytes(row.message.delivery.payload())),
            array(&|row| bytes(&row.envelope)),
            bytes(LOCAL_CONFLICT.as_bytes()),
            format!("'{lock_wait}'"),
            array(&|row| match row.message.provider_key {
                Some(key) => format!("'{key}'::pg_catalog.uuid"),
                None => "NULL::pg_catalog.uuid".to_owned(),
            }),
        ]
    }

    /// Binds the values to the statement.
    pub(super) fn bind<'q>(&self, query: Query<'q, Pg, PgArguments>, lock_wait: u64) -> Query<'q, Pg, PgArguments> {
        let rows = &self.rows;
        let query = query.bind(each(rows, |row| row.message.identity.handler.0));
        let query = query.bind(each(rows, |row| row.key().to_vec())).bind(each(rows, |row| row.fingerprint().to_vec()));
        let query = query.bind(each(rows, |row| row.message.delivery.payload().to_vec()));
        let query = query.bind(each(rows, |row| row.envelope.clone()));
        let query = query.bind(LOCAL_CONFLICT.as_bytes()).bind(lock_wait.to_string());
        query.bind(each(rows, |row| row.message.provider_key))
    }
}

/// Returns what became of local messages that were not scheduled, if the answer to their statement is among these rows.
pub(super) fn unscheduled(answer: &[PgRow]) -> Unscheduled {
    let count = |row: &PgRow, column| row.try_get::<i64, _>(column).ok().and_then(|count| usize::try_from(count).ok());
    let found = |row| Some(Unscheduled { conflicts: count(row, CONFLICTS)?, duplicates: count(row, DUPLICATES)? });
    answer.iter().find_map(found).unwrap_or_default()
}
