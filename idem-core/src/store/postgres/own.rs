//! Claims and staged messages in transactions of the application's own.

use sqlx::{Connection as _, PgConnection, Row as _};

use crate::outbox::{Outgoing, StoreOutbox};
use crate::store::{Consumers, OutboxRows, OwnClaim, StoreError, check_transaction, checked};
use crate::{Error, Fingerprint, Key, KeyError};

use super::writes::bind;
use super::{Postgres, claims_sql, outbox_sql};

/// Why a statement has inserted nothing. The name is registered again for the transaction that repeats this one.
const UNKNOWN: &str = "the transaction does not know the name: use a connection of the store's database. If that was \
                       restored just now, or the transaction is older than the name (REPEATABLE READ), repeat the \
                       transaction. A trigger of the table may also have refused the row";

impl Postgres {
    /// Returns the outbox with this name, to stage messages in a transaction of the application's own: of a web request,
    /// a job or an import. A relay with this name publishes them.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Outgoing, Postgres};
    /// # use sqlx::Connection;
    /// # #[derive(serde::Serialize)] struct OrderPlaced { order_id: i64 }
    /// # async fn place(store: Postgres, pool: &mut sqlx::PgConnection) -> Result<(), BoxError> {
    /// let outbox = store.outbox("billing");
    /// let mut tx = pool.begin().await?;
    /// sqlx::query("INSERT INTO orders (id) VALUES (7)").execute(&mut *tx).await?;
    /// outbox.stage(&mut tx, [Outgoing::json("order.placed", &OrderPlaced { order_id: 7 })?.key(7)]).await?;
    /// tx.commit().await?;
    /// outbox.wake();
    /// # Ok(()) }
    /// ```
    pub fn outbox(&self, name: impl Into<String>) -> StoreOutbox<Self> {
        StoreOutbox::new(self, name)
    }

    /// Claims the key of a message, or of a request, in a transaction of the application's own, as a worker does for each
    /// delivery. Whoever claims the same (consumer, handler, key) meanwhile waits until this transaction ends, for as long as its
    /// lock timeout permits.
    ///
    /// There is no guard, no inbox and no retry: if the application rolls back, nothing is recorded. A claim that this
    /// transaction has made itself, also in a savepoint, is `New` again: a call that was cancelled is made again, or two
    /// layers of a request claim. So give each message a transaction of its own. Claims are removed after the store's
    /// retention, by any worker that runs on this schema. Use a consumer name that no worker has. The role of the
    /// connection needs what a worker needs on `processed_messages` and `handlers`.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Fingerprint, Key, Postgres};
    /// # use sqlx::Connection;
    /// # async fn import(store: Postgres, pool: &mut sqlx::PgConnection, id: &str, row: &[u8]) -> Result<(), BoxError> {
    /// let mut tx = pool.begin().await?;
    /// if store.claim_key(&mut tx, "importer", "row", Key::of(id)?, Fingerprint::of(row)).await?.is_new() {
    ///     sqlx::query("INSERT INTO rows (id) VALUES ($1)").bind(id).execute(&mut *tx).await?;
    /// }
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`]: a statement failed, which has aborted the application's transaction, or that does not know the
    /// handler, and nothing was written. [`Error::Config`]: the connection is in no transaction of sqlx's, or the key is empty
    /// ([`Key::stored`] returns such a one).
    pub async fn claim_key(
        &self,
        connection: &mut PgConnection,
        consumer: &str,
        handler: &str,
        key: Key,
        fingerprint: Fingerprint,
    ) -> Result<OwnClaim, Error> {
        if key.as_bytes().is_empty() {
            return Err(Error::Config(KeyError::Empty.to_string()));
        }
        check_transaction(connection.is_in_transaction())?;
        let failed = |error: StoreError| Error::database("could not claim a message", error);
        let name = (consumer.to_owned(), handler.to_owned());
        let refused = |error: sqlx::Error| Error::database("could not claim a message", error);
        let id = async {
            let ids = self.register(consumer, &[handler]).await?;
            ids.first().copied().ok_or_else(|| StoreError::Unavailable("no handler was registered".into()))
        };
        let id = self.0.handlers.get(&name, id).await.map_err(failed)?.0;
        let claim = self.query(claims_sql::OWN).persistent(false);
        let claim = claim.bind(id).bind(key.as_bytes()).bind(fingerprint.as_bytes());
        if claim.fetch_optional(&mut *connection).await.map_err(refused)?.is_some() {
            return Ok(OwnClaim::New);
        }
        let known = self.query(claims_sql::OWN_EXISTING).persistent(false).bind(id).bind(key.as_bytes());
        let Some(row) = known.fetch_optional(&mut *connection).await.map_err(refused)? else {
            // The database does not have the number, or the claim was pruned in between.
            self.0.handlers.forget(&name);
            return Err(Error::database("could not claim a message", UNKNOWN));
        };
        let found: &[u8] = row.try_get(0).map_err(refused)?;
        let is_copy = fingerprint.is_copy_of(Fingerprint::stored(found));
        Ok(OwnClaim::found(is_copy, row.try_get(1).map_err(refused)?))
    }
}

impl StoreOutbox<Postgres> {
    /// Writes messages to the outbox, in this order, in the transaction that is open on the connection. They leave after
    /// the application commits, and never if it rolls back. Their ids are random (UUIDv7), unless they have one.
    ///
    /// Messages of one key leave in the order of this call, over all transactions that take a common lock before it, such as
    /// that of the business row. The role of the connection needs INSERT on `outbox_messages`
    /// and SELECT on `outboxes`. If the future is dropped, either all or none of them are written; roll back then.
    ///
    /// # Errors
    /// [`Error::Config`]: a message cannot be sent, or the connection is in no transaction of sqlx's, and none was written; or
    /// the store's role cannot use the tables of the outbox, and the text names the fix. [`Error::Database`]: a statement failed,
    /// which has aborted the application's transaction, or that does not know the outbox, and nothing was written.
    pub async fn stage(
        &self,
        connection: &mut PgConnection,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> Result<(), Error> {
        let mut messages = messages.into_iter().peekable();
        if messages.peek().is_none() {
            return Ok(());
        }
        check_transaction(connection.is_in_transaction())?;
        let outbox = self.store.0.outboxes.get(&self.name, self.store.register_outbox(&self.name)).await?;
        let messages = checked(messages, self.store.0.facts.notifier.limit(outbox))?;
        let failed = |error: sqlx::Error| Error::database("could not stage messages", error);
        let query = bind(self.store.query(outbox_sql::STAGE_OWN), outbox, &messages).persistent(false);
        let row = query.fetch_one(&mut *connection).await.map_err(failed)?;
        match row.try_get::<i64, _>(0).map_err(failed)? {
            0 => {
                self.store.0.outboxes.forget(&self.name);
                Err(Error::database("could not stage messages", UNKNOWN))
            }
            rows if rows == messages.len() as i64 => {
                self.check_for_relay(outbox);
                Ok(())
            }
            _ => Err(Error::database("could not stage messages", "a trigger of outbox_messages has refused a row")),
        }
    }
}
