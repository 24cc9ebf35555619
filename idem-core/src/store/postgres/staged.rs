//! The messages that a transaction has staged.

use sqlx::Postgres as Pg;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::outbox::{StagedMessage, envelope};
use crate::store::OutboxId;

use super::quote::bytes;
use super::rows::each;

/// The messages that a transaction has staged.
pub(super) struct Staged {
    outbox: OutboxId,
    rows: Vec<NewRow>,
}

/// A row to be inserted.
struct NewRow {
    message: StagedMessage,
    envelope: Vec<u8>,
}

impl NewRow {
    fn new(message: StagedMessage) -> Self {
        Self { envelope: envelope::seal(message.message()), message }
    }

    fn key(&self) -> &[u8] {
        self.message.key().map_or(&[], |key| key.as_bytes())
    }

    fn size(&self) -> usize {
        self.message.payload().len() + self.envelope.len()
    }
}

impl Staged {
    pub(super) fn new(outbox: OutboxId, messages: impl IntoIterator<Item = StagedMessage>) -> Self {
        Self { outbox, rows: messages.into_iter().map(NewRow::new).collect() }
    }

    pub(super) fn extend(&mut self, messages: Vec<StagedMessage>) {
        self.rows.extend(messages.into_iter().map(NewRow::new));
    }

    /// Stages the messages in the outbox with this number.
    pub(super) fn move_to(&mut self, outbox: OutboxId) {
        self.outbox = outbox;
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The sizes of the rows, which decide whether they can travel in the string of guard and COMMIT.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(NewRow::size)
    }

    /// Returns the values of the INSERT of each message as literals. Nothing of a message gets into them except hexadecimal digits,
    /// which the types read whatever settings the handler has left.
    pub(super) fn values(&self) -> impl Iterator<Item = [String; 6]> {
        let outbox = self.outbox.number;
        self.rows.iter().map(move |row| {
            let (id, payload) = (row.message.id(), bytes(row.message.payload()));
            let [to, key, envelope] = [row.message.to().as_bytes(), row.key(), &row.envelope].map(bytes);
            [outbox.to_string(), format!("'{id}'"), to, key, envelope, payload]
        })
    }

    /// Binds the values of the rows to one of the statements for many.
    pub(super) fn bind<'q>(&self, query: Query<'q, Pg, PgArguments>) -> Query<'q, Pg, PgArguments> {
        let rows = &self.rows;
        let query = query.bind(self.outbox.number).bind(each(rows, |row| row.message.id()));
        let query = query.bind(each(rows, |row| row.message.to().as_bytes().to_vec()));
        let query = query.bind(each(rows, |row| row.key().to_vec())).bind(each(rows, |row| row.envelope.clone()));
        query.bind(each(rows, |row| row.message.payload().to_vec()))
    }
}
