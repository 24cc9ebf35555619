//! The trait that `#[idempotent]` implements.

use crate::{BoxError, Delivery, Fingerprint, Input, Key, KeyError, Param};

/// A message handler: a name, a key, and a function that runs in the transaction of the claim.
///
/// `#[idempotent]` implements it for an empty struct with the function's name; a manual implementation is equivalent.
///
/// The writes that `handle` makes through `tx` are committed together with the claim, or not at all. It may run more
/// than once for one message, each time in a new transaction, of which one commits. It must not end the transaction
/// itself: a handler that runs `COMMIT` or `ROLLBACK` is detected, and its message becomes a dead letter. The future is
/// dropped at the handler timeout and at the shutdown timeout; the connection is then closed, which rolls back.
///
/// ```
/// # #[cfg(feature = "sqlite")] mod example {
/// # use idem_core::{BoxError, Delivery, Handler, Key, KeyError};
/// struct OrderPaid;
///
/// impl Handler for OrderPaid {
///     const NAME: &'static str = "order_paid";
///     type Message = Paid;
///     type Input = Paid;
///     type Params = ();
///     type Connection = sqlx::SqliteConnection;
///
///     fn key(message: &Paid, _: &Delivery) -> Result<Key, KeyError> {
///         Key::of(&message.event_id)
///     }
///
///     async fn handle(message: Paid, (): (), tx: &mut sqlx::SqliteConnection) -> Result<(), BoxError> {
///         sqlx::query("INSERT INTO payments (order_id) VALUES (?)").bind(message.order_id).execute(tx).await?;
///         Ok(())
///     }
/// }
/// # struct Paid { event_id: String, order_id: i64 }
/// # }
/// ```
pub trait Handler: Send + Sync + 'static {
    /// The stored identity, part of every claim. With another name all messages are new, so keep it when the function
    /// is renamed, or give the old one in [`FORMERLY`](Self::FORMERLY).
    const NAME: &'static str;

    /// The names that it had before. A name and its former ones are one handler, also for a release that has the old name.
    const FORMERLY: &'static [&'static str] = &[];

    /// The event type that this handler takes, if several handlers share a queue; a subject pattern if the worker
    /// [routes by subject](crate::Worker::route_by_subject). `None` takes every event that no other handler of the
    /// worker names.
    const EVENT: Option<&'static str> = None;

    /// Whether it takes tombstones: deliveries without a payload, for which its message is `None`. `#[idempotent]` sets
    /// it if the message type is written as an `Option`. For any other handler, a tombstone becomes a dead letter with
    /// reason `undecodable`.
    const TOMBSTONES: bool = false;

    /// Whether what it writes is idempotent by itself: it leaves the same rows however often, and in whichever order, its
    /// messages are handled. `#[idempotent(.., natural)]` sets it. A first delivery then runs without a claim, so a copy of
    /// it runs again. Its key and fingerprint still identify its rows in the inbox. In a worker with an order each message
    /// has a claim nevertheless.
    const NATURAL: bool = false;

    /// Whether its key, or a part of it, is the message's position at the broker. `#[idempotent]` sets it for a key
    /// with `position`. A worker with such a handler refuses to start if its broker has no positions.
    const NEEDS_POSITION: bool = false;

    /// Whether its key, or a part of it, is the key by which the broker chooses a partition. `#[idempotent]` sets it
    /// for a key with `partition_key`. A worker with such a handler refuses to start if its broker has no such keys.
    const NEEDS_PARTITION_KEY: bool = false;

    /// Whether its key, or a part of it, is the id of a CloudEvent. `#[idempotent]` sets it for a key with
    /// `cloud_event_id`. A worker with such a handler refuses to start unless it reads
    /// [CloudEvents](crate::Worker::cloud_events).
    const NEEDS_CLOUD_EVENT: bool = false;

    /// The name of the recipe of [`fingerprint`](Self::fingerprint), empty for the default. `#[idempotent(fingerprint = ..)]`
    /// sets it to the path of the function. Fingerprints by recipes of different names are not compared: after a change, a
    /// second message with the key of an earlier one counts as its copy.
    const RECIPE: &'static str = "";

    /// The decoded payload.
    type Message: Send + 'static;

    /// The input of [`handle`](Self::handle): the message itself, or a [`Batch`](crate::Batch) of them.
    type Input: Input<Self::Message>;

    /// The other parameters, extracted before the transaction begins: `()`, or a tuple of extractors.
    type Params: Param;

    /// The type of the connection that it writes through: `sqlx::PgConnection` or `sqlx::SqliteConnection`.
    type Connection: Send;

    /// Returns the key of a message. It must be the same for each delivery of one message.
    ///
    /// # Errors
    /// No key can be created; the message becomes a dead letter with reason `no key`.
    fn key(message: &Self::Message, delivery: &Delivery) -> Result<Key, KeyError>;

    /// Returns the fingerprint, which distinguishes a copy from another message with the same key. By default it is a
    /// hash of the payload, or a fixed value for a tombstone.
    fn fingerprint(delivery: &Delivery) -> Fingerprint {
        Fingerprint::of_delivery(delivery)
    }

    /// Handles one message, or the new messages of a batch.
    ///
    /// # Errors
    /// Any error rolls the transaction back. The message is retried later until its attempts are used up;
    /// [`permanent`](crate::permanent) makes it a dead letter immediately.
    fn handle(
        input: Self::Input,
        params: Self::Params,
        tx: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}
