//! What a worker deduplicates with: a SQL store, or a [key-value store](crate::key_value). Receiving, decoding, keys, parking,
//! settling and draining are the same for both; an engine has the steps that differ.

use std::pin::pin;
use std::sync::Arc;

use tokio::task::JoinSet;

use crate::park::Carried;
use crate::registry::Registered;
use crate::runtime::{Ended, Pipeline, Settings};
use crate::store::{Answer, Consumers, Identity, InboxRows, OutboxRows, StoreFacts, Transactions};
use crate::worker::{Queues, Registration};
use crate::{Acker, Delivery, Error};

/// What a [`Worker`](crate::Worker) deduplicates with: every [`Store`](crate::Store), which commits the claim of a message
/// together with what its handler writes, and every [`KeyValue`](crate::key_value::KeyValue).
///
/// Other crates implement [`Store`](crate::Store) or [`KeyValueStore`](crate::key_value::KeyValueStore) instead.
///
/// ```
/// # use idem_core::{Engine, Source, Worker};
/// /// A worker without handlers yet, on PostgreSQL or on Redis.
/// fn billing<E: Engine, Src: Source>(engine: E, orders: Src) -> Worker<E, Src> {
///     Worker::new("billing", engine, orders)
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a worker cannot deduplicate with `{Self}`",
    label = "neither a store nor a key-value store",
    note = "`Postgres::connect(..)` and `Sqlite::open(..)` are stores; a key-value store is wrapped, `KeyValue::new(..)`, as \
            `Redis::connect(..)` does"
)]
#[allow(private_interfaces, reason = "only this crate implements it, and calls its functions")]
pub trait Engine: Clone + Send + Sync + 'static {
    /// What a run lends to its handler: the transaction of a store, or the writes that a key-value store applies at the end.
    type Lent: Send + 'static;

    /// Whether messages are stored in an inbox, from which they run.
    #[doc(hidden)]
    const STORES: bool;

    /// Returns what the core knows of it without asking.
    #[doc(hidden)]
    fn about(&self) -> &StoreFacts;

    /// Finds out whether it can be used.
    #[doc(hidden)]
    fn probe(&self) -> impl Future<Output = Answer<()>> + Send;

    /// Checks that a worker with these handlers can run, and registers them.
    #[doc(hidden)]
    fn register_handlers(
        &self,
        consumer: &str,
        handlers: &[Arc<dyn Registered<Self>>],
        settings: &Settings,
    ) -> impl Future<Output = Result<Registration<Self>, Error>> + Send;

    /// Spawns the tasks that process what is in the queues, which must end before the worker does, and those beside them.
    #[doc(hidden)]
    fn spawn<A: Acker>(
        pipeline: &Arc<Pipeline<Self>>,
        queues: Queues<A>,
        working: &mut JoinSet<()>,
        beside: &mut JoinSet<()>,
    );

    /// Tries to process a delivery.
    #[doc(hidden)]
    fn attempt(
        pipeline: &Pipeline<Self>,
        slots: Option<&tokio::sync::Semaphore>,
        delivery: &mut Delivery,
        carried: &mut Carried,
    ) -> impl Future<Output = Attempted> + Send;

    /// Gives up what a delivery holds that goes back to the broker.
    #[doc(hidden)]
    fn leave(pipeline: &Pipeline<Self>, carried: &mut Carried) -> impl Future<Output = ()> + Send;

    /// Waits until a message in the inbox is processed or dead. Cancel safe.
    #[doc(hidden)]
    fn row_done(pipeline: &Pipeline<Self>, identity: &Identity) -> impl Future<Output = ()> + Send;
}

/// How a try has ended. The error is that of an earlier step than the last one.
#[allow(missing_debug_implementations, reason = "nobody else can have one")]
pub struct Attempted(pub(crate) Result<Ended, Ended>);

#[allow(private_interfaces, reason = "as above")]
impl<S: Transactions + InboxRows + OutboxRows + Consumers> Engine for S {
    type Lent = S::Txn;

    const STORES: bool = true;

    fn about(&self) -> &StoreFacts {
        self.facts()
    }

    fn probe(&self) -> impl Future<Output = Answer<()>> + Send {
        self.ping()
    }

    fn register_handlers(
        &self,
        consumer: &str,
        handlers: &[Arc<dyn Registered<Self>>],
        settings: &Settings,
    ) -> impl Future<Output = Result<Registration<Self>, Error>> + Send {
        crate::worker::register_handlers(consumer, self, handlers, settings)
    }

    fn spawn<A: Acker>(
        pipeline: &Arc<Pipeline<Self>>,
        queues: Queues<A>,
        working: &mut JoinSet<()>,
        beside: &mut JoinSet<()>,
    ) {
        crate::worker::spawn_of_store(pipeline, queues, working, beside);
    }

    async fn attempt(
        pipeline: &Pipeline<Self>,
        slots: Option<&tokio::sync::Semaphore>,
        delivery: &mut Delivery,
        carried: &mut Carried,
    ) -> Attempted {
        // Pinned first, like other large futures: a wrapper would move the whole future.
        Attempted(match pipeline.routes.are_several(delivery) {
            true => pin!(pipeline.fan_out(slots, delivery, carried)).await,
            false => pin!(pipeline.attempt(slots, delivery, carried)).await,
        })
    }

    async fn leave(_: &Pipeline<Self>, _: &mut Carried) {}

    fn row_done(pipeline: &Pipeline<Self>, identity: &Identity) -> impl Future<Output = ()> + Send {
        pipeline.row_done(identity)
    }
}
