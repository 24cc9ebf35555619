//! The messages that a transaction has staged.

use std::fmt::Write as _;

use sqlx::Postgres as Pg;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::outbox::{StagedMessage, envelope};
use crate::store::OutboxId;

use super::handle::Postgres;
use super::statement::Statement;

/// The messages that a transaction has staged.
pub(super) struct Staged {
    outbox: OutboxId,
    rows: Vec<NewRow>,
    /// The statements of the store.
    text: Statement,
    prepare: Statement,
    many: Statement,
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

    /// Returns the values of the last columns.
    fn bytes(&self) -> [&[u8]; 4] {
        [self.message.to().as_bytes(), self.key(), &self.envelope, self.message.payload()]
    }

    fn size(&self) -> usize {
        self.message.payload().len() + self.envelope.len()
    }
}

impl Staged {
    pub(super) fn new(store: &Postgres, outbox: OutboxId, messages: impl IntoIterator<Item = StagedMessage>) -> Self {
        let rows = messages.into_iter().map(NewRow::new).collect();
        let sql = store.sql();
        let (text, prepare, many) = (sql.stage.clone(), sql.prepare_stage.clone(), sql.stage_many.clone());
        Self { outbox, rows, text, prepare, many }
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

    /// Returns the statement that prepares the INSERT of one message, if this is one.
    pub(super) fn prepare(&self) -> Option<&str> {
        (self.rows.len() == 1).then(|| self.prepare.as_str())
    }

    /// Returns the INSERT as text, which calls the prepared one if there is one. Nothing of a message gets into it except
    /// hexadecimal digits, which `decode` and the types read whatever settings the handler has left.
    pub(super) fn text(&self, is_prepared: bool) -> String {
        if let ([row], true) = (self.rows.as_slice(), is_prepared) {
            return self.call(row);
        }
        let size: usize = self.rows.iter().map(|row| 2 * row.size() + 400).sum();
        let mut text = String::with_capacity(size);
        text.push_str(self.text.as_str());
        for (place, row) in self.rows.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ =
                write!(text, "{}({}, '{}'", if place > 0 { ", " } else { "" }, self.outbox.number, row.message.id());
            let [destination, key, envelope, payload] =
                row.bytes().map(|bytes| format!("pg_catalog.decode('{}', 'hex')", hex::encode(bytes)));
            let _ = write!(
                text,
                ", pg_catalog.convert_from({destination}, 'UTF8'), {key}, \
                 pg_catalog.convert_from({envelope}, 'UTF8')::pg_catalog.json, {payload})"
            );
        }
        text
    }

    fn call(&self, row: &NewRow) -> String {
        let mut text = String::with_capacity(2 * row.size() + 400);
        let (outbox, id) = (self.outbox.number, row.message.id());
        // Writing to a string cannot fail.
        let _ = write!(text, "EXECUTE idem_stage({outbox}, '{id}'");
        for bytes in row.bytes() {
            let _ = write!(text, ", {}", super::state::bytes(bytes));
        }
        text.push(')');
        text
    }

    /// Returns the INSERT with bound values, which inserts only in the transaction with this number; `None`: in any.
    pub(super) fn query<'q>(&self, xid: Option<&str>) -> Query<'q, Pg, PgArguments> {
        self.bound(&self.many).bind(xid.map(ToOwned::to_owned))
    }

    /// Binds the values of the rows to one of the statements for many.
    pub(super) fn bound<'q>(&self, statement: &Statement) -> Query<'q, Pg, PgArguments> {
        fn all<T>(rows: &[NewRow], column: impl Fn(&NewRow) -> T) -> Vec<T> {
            rows.iter().map(column).collect()
        }
        let rows = &self.rows;
        let query = statement.query().bind(self.outbox.number).bind(all(rows, |row| row.message.id()));
        let query = query.bind(all(rows, |row| row.message.to().as_bytes().to_vec()));
        let query = query.bind(all(rows, |row| row.key().to_vec())).bind(all(rows, |row| row.envelope.clone()));
        query.bind(all(rows, |row| row.message.payload().to_vec()))
    }
}
