//! The trait that `#[idempotent]` implements.

use crate::{BoxError, Delivery, Fingerprint, Input, Key, KeyError, Param};

/// A message handler: a name, a key, and a function that runs in the transaction of the claim.
///
/// `#[idempotent]` implements it for an empty struct with the function's name; writing it by hand is the same thing.
///
/// What `handle` writes through `tx` is committed together with the claim, or not at all. It may run more than once for
/// one message, each time in a new transaction, of which one commits. It must not end the transaction itself: a handler
/// that runs `COMMIT` or `ROLLBACK` is found out, and its message is given up. The future is dropped at the handler's
/// deadline and when a shutdown's patience ends; the connection is closed then, which rolls back.
pub trait Handler: Send + Sync + 'static {
    /// The stored identity, part of every claim. Under another name all messages are new, so keep it when the function
    /// is renamed.
    const NAME: &'static str;

    /// The type of event that this handler takes, where several handlers share a queue; a pattern of subjects where the
    /// worker [routes by subject](crate::Worker::route_by_subject). `None` takes every event that no other handler of the
    /// worker names.
    const EVENT: Option<&'static str> = None;

    /// Whether it takes tombstones: deliveries without a payload at all, for which its message is `None`. `#[idempotent]`
    /// says so of a message type that is written as an `Option`. To any other handler, a tombstone is a dead letter with
    /// reason `undecodable`.
    const TOMBSTONES: bool = false;

    /// Whether its key, or a part of it, is the place where the broker keeps the message. `#[idempotent]` says so of a key
    /// with `position`. A worker refuses to start with such a handler where its broker has no such places.
    const NEEDS_POSITION: bool = false;

    /// Whether its key, or a part of it, is the key by which the broker chooses a partition. `#[idempotent]` says so of a
    /// key with `partition_key`. A worker refuses to start with such a handler where its broker has no such keys.
    const NEEDS_PARTITION_KEY: bool = false;

    /// Whether its key, or a part of it, is the id of a CloudEvent. `#[idempotent]` says so of a key with `cloud_event_id`.
    /// A worker refuses to start with such a handler unless it reads [CloudEvents](crate::Worker::cloud_events).
    const NEEDS_CLOUD_EVENT: bool = false;

    /// The decoded payload.
    type Message: Send + 'static;

    /// What [`handle`](Self::handle) takes: the message itself, or a [`Batch`](crate::Batch) of them.
    type Input: Input<Self::Message>;

    /// What it takes beside the message, taken before the transaction begins: `()`, or a tuple of extractors.
    type Params: Param;

    /// The connection that it writes through: `sqlx::PgConnection` or `sqlx::SqliteConnection`.
    type Connection: Send;

    /// The key of a message. It must be the same for each delivery of one message.
    ///
    /// # Errors
    /// No key can be made; the message becomes a dead letter with reason `no key`.
    fn key(message: &Self::Message, delivery: &Delivery) -> Result<Key, KeyError>;

    /// What tells a copy from another message under the same key; by default a hash of the payload, or what
    /// stands for a tombstone.
    fn fingerprint(delivery: &Delivery) -> Fingerprint {
        Fingerprint::of_delivery(delivery)
    }

    /// Handles one message, or the new ones of a batch.
    ///
    /// # Errors
    /// Any error rolls the transaction back. The message runs again after a while, until its attempts are used up;
    /// [`permanent`](crate::permanent) gives it up at once.
    fn handle(
        input: Self::Input,
        params: Self::Params,
        tx: &mut Self::Connection,
    ) -> impl Future<Output = Result<(), BoxError>> + Send;
}
