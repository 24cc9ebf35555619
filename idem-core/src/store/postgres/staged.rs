//! The messages that a transaction has staged.

use std::fmt::Write as _;

use sqlx::Postgres as Pg;
use sqlx::postgres::PgArguments;
use sqlx::query::Query;

use crate::outbox::{StagedMessage, envelope, lane};
use crate::store::OutboxId;

use super::handle::Postgres;
use super::statement::Statement;

/// The messages that a transaction has staged.
pub(super) struct Staged {
    outbox: OutboxId,
    rows: Vec<NewRow>,
    /// The statements of the store.
    text: Statement,
    many: Statement,
}

/// A row to be inserted.
struct NewRow {
    lane: i16,
    message: StagedMessage,
    envelope: Vec<u8>,
}

impl NewRow {
    fn new(message: StagedMessage) -> Self {
        let lane = lane(message.message(), message.id()).into();
        Self { lane, envelope: envelope::seal(message.message()), message }
    }

    fn key(&self) -> &[u8] {
        self.message.key().map_or(&[], |key| key.as_bytes())
    }

    fn size(&self) -> usize {
        self.message.payload().len() + self.envelope.len()
    }
}

impl Staged {
    pub(super) fn new(store: &Postgres, outbox: OutboxId, messages: impl IntoIterator<Item = StagedMessage>) -> Self {
        let rows = messages.into_iter().map(NewRow::new).collect();
        Self { outbox, rows, text: store.sql().stage.clone(), many: store.sql().stage_many.clone() }
    }

    pub(super) fn extend(&mut self, messages: Vec<StagedMessage>) {
        self.rows.extend(messages.into_iter().map(NewRow::new));
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    /// The sizes of the rows, which decide whether they can travel in the string of guard and COMMIT.
    pub(super) fn sizes(&self) -> impl Iterator<Item = usize> {
        self.rows.iter().map(NewRow::size)
    }

    /// Returns the INSERT as text. Nothing of a message gets into it except hexadecimal digits, which `decode` reads
    /// whatever settings the handler has left.
    pub(super) fn text(&self) -> String {
        let size: usize = self.rows.iter().map(|row| 2 * row.size() + 400).sum();
        let mut text = String::with_capacity(size);
        text.push_str(self.text.as_str());
        for (place, row) in self.rows.iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = write!(
                text,
                "{}({}, {}, '{}'",
                if place > 0 { ", " } else { "" },
                self.outbox.number,
                row.lane,
                row.message.id()
            );
            for bytes in [row.message.to().as_bytes(), row.key(), &row.envelope, row.message.payload()] {
                let _ = write!(text, ", pg_catalog.decode('{}', 'hex')", hex::encode(bytes));
            }
            text.push(')');
        }
        text
    }

    /// Returns the INSERT with bound values, which inserts only in the transaction with this number; `None`: in any.
    pub(super) fn query<'q>(&self, xid: Option<&str>) -> Query<'q, Pg, PgArguments> {
        fn all<T>(rows: &[NewRow], column: impl Fn(&NewRow) -> T) -> Vec<T> {
            rows.iter().map(column).collect()
        }
        let rows = &self.rows;
        let query = self.many.query().bind(self.outbox.number).bind(all(rows, |row| row.lane));
        let query = query.bind(all(rows, |row| row.message.id()));
        let query = query.bind(all(rows, |row| row.message.to().as_bytes().to_vec()));
        let query = query.bind(all(rows, |row| row.key().to_vec())).bind(all(rows, |row| row.envelope.clone()));
        query.bind(all(rows, |row| row.message.payload().to_vec())).bind(xid.map(ToOwned::to_owned))
    }
}
