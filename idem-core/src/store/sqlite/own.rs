//! Claims and staged messages in transactions of the application's own.

use sqlx::Connection as _;
use sqlx::sqlite::SqliteConnection;

use super::{Sqlite, claims, outbox_rows};
use crate::outbox::{Outgoing, StoreOutbox};
use crate::store::{ClaimState, Claimed, HandlerId, Identity, OwnClaim, StoreError, check_transaction, checked};
use crate::{Error, Fingerprint, Key, KeyError};

impl Sqlite {
    /// Returns the outbox with this name, to stage messages in a transaction of the application's own: of a web request,
    /// a job or an import. A relay with this name publishes them. The connection is one to the file of the store.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Outgoing, Sqlite};
    /// # use sqlx::Connection;
    /// # #[derive(serde::Serialize)] struct OrderPlaced { order_id: i64 }
    /// # async fn place(store: Sqlite, connection: &mut sqlx::SqliteConnection) -> Result<(), BoxError> {
    /// let outbox = store.outbox("billing");
    /// let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
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
    /// delivery. The connection is one to the file of the store. Begin the transaction with `BEGIN IMMEDIATE`: SQLite refuses to
    /// write in one that has read before another one wrote.
    ///
    /// There is no guard, no inbox and no retry: if the application rolls back, nothing is recorded. A claim that this
    /// transaction has made itself, also in a savepoint, is `New` again: a call that was cancelled is made again, or two
    /// layers of a request claim. So give each message a transaction of its own. Claims are removed after the store's
    /// retention, by any worker that runs on this file. Use a consumer name that no worker has.
    ///
    /// ```no_run
    /// # use idem_core::{BoxError, Fingerprint, Key, Sqlite};
    /// # use sqlx::Connection;
    /// # async fn import(store: Sqlite, file: &mut sqlx::SqliteConnection, id: &str, row: &[u8]) -> Result<(), BoxError> {
    /// let mut tx = file.begin_with("BEGIN IMMEDIATE").await?;
    /// if store.claim_key(&mut tx, "importer", "row", Key::of(id)?, Fingerprint::of(row)).await?.is_new() {
    ///     sqlx::query("INSERT INTO rows (id) VALUES (?)").bind(id).execute(&mut *tx).await?;
    /// }
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Error::Database`]: a statement failed. [`Error::Config`]: the connection is in no transaction of sqlx's, or the key
    /// is empty ([`Key::stored`] returns such a one).
    pub async fn claim_key(
        &self,
        connection: &mut SqliteConnection,
        consumer: &str,
        handler: &str,
        key: Key,
        fingerprint: Fingerprint,
    ) -> Result<OwnClaim, Error> {
        if key.as_bytes().is_empty() {
            return Err(Error::Config(KeyError::Empty.to_string()));
        }
        let failed = |error: sqlx::Error| Error::database("could not claim a message", error);
        // On this connection: another one would wait for its transaction.
        let handler = self.intern(connection, consumer, handler).await.map_err(failed)?;
        // Behind a statement: sqlx counts in the connection's thread.
        check_transaction(connection.is_in_transaction())?;
        let identity = Identity { handler: HandlerId(handler), key, fingerprint };
        match claims::insert(connection, &identity, ClaimState::Processed).await.map_err(failed)? {
            Claimed::New { .. } => Ok(OwnClaim::New),
            Claimed::Found(Some(existing)) => {
                // This transaction is the only writer, so what others do not see is its own.
                let committed = self.read(async |reader| claims::read(reader, &identity).await).await;
                let is_own = committed.map_err(|error| Error::database("could not claim a message", error))?.is_none();
                Ok(OwnClaim::found(fingerprint.is_copy_of(existing.fingerprint), is_own))
            }
            // As the only writer it has made the claim, or reads it.
            Claimed::Found(None) => Err(Error::database("could not claim a message", StoreError::LockTimeout)),
        }
    }
}

impl StoreOutbox<Sqlite> {
    /// Writes messages to the outbox, in this order, in the transaction that is open on the connection, which is one to
    /// the file of the store. They leave after the application commits, and never if it rolls back. Their ids are random
    /// (UUIDv7), unless they have one.
    ///
    /// If the future is dropped, either all or none of them are written, up to 4,000; roll back then.
    ///
    /// # Errors
    /// [`Error::Config`]: a message cannot be sent, or the connection is in no transaction of sqlx's, and none was written.
    /// [`Error::Database`]: a statement failed, and the application has to roll back.
    pub async fn stage(
        &self,
        connection: &mut SqliteConnection,
        messages: impl IntoIterator<Item = Outgoing>,
    ) -> Result<(), Error> {
        let mut messages = messages.into_iter().peekable();
        if messages.peek().is_none() {
            return Ok(());
        }
        let failed = |error: sqlx::Error| Error::database("could not stage messages", error);
        let outbox = outbox_rows::intern(connection, &self.name).await.map_err(failed)?;
        // Behind a statement: sqlx counts in the connection's thread.
        check_transaction(connection.is_in_transaction())?;
        let messages = checked(messages, self.store.facts.notifier.limit(outbox))?;
        let messages: Vec<_> = messages.into_iter().map(|message| (outbox, message)).collect();
        outbox_rows::insert(connection, &messages).await.map_err(failed)?;
        self.check_for_relay(outbox);
        Ok(())
    }
}
