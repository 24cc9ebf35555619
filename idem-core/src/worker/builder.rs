//! The builder of a worker.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::registry::Registered;
use crate::runtime::{Health, Settings, SuspectLock};
use crate::{Error, Json, RetryPolicy, Source, Store};

/// Consumes one source under one consumer name and runs its handlers.
///
/// ```no_run
/// # use idem_core::{Worker, Store, Source, Handler, HasConnection, Error};
/// # async fn run<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
/// #     store: S, orders: impl Source, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
/// Worker::new("billing", store, orders)
///     .handler::<H>()
///     .run_until(shutdown)
///     .await
/// # }
/// ```
///
/// The same with all defaults written out:
///
/// ```no_run
/// # use std::time::Duration; use idem_core::{Worker, RetryPolicy, Store, Source, Handler, HasConnection, Error};
/// # async fn run<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
/// #     store: S, orders: impl Source, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
/// Worker::new("billing", store, orders)
///     .handler::<H>()
///     .concurrency(16)
///     .inbox_concurrency(4)
///     .handler_timeout(Duration::from_secs(30))
///     .prepare_timeout(Duration::from_secs(10))
///     .retry(RetryPolicy::new().max_attempts(5))
///     .max_payload(1024 * 1024)
///     .lease_duration(Duration::from_secs(10))
///     .poll_interval(Duration::from_secs(1))
///     .shutdown_timeout(Duration::from_secs(30))
///     .run_until(shutdown)
///     .await
/// # }
/// ```
#[must_use = "a worker does nothing until `run_until`"]
pub struct Worker<S, Src, St = (), C = Json, Stage = NoHandlers> {
    pub(super) consumer: String,
    pub(super) store: S,
    pub(super) source: Src,
    pub(super) state: Arc<St>,
    pub(super) codec: Arc<C>,
    pub(super) handlers: Vec<Arc<dyn Registered<S>>>,
    pub(super) settings: Settings,
    pub(super) health: Health,
    pub(super) gate: SuspectLock,
    pub(super) stage: PhantomData<Stage>,
}

/// A worker without handlers. Its state and codec can still be set.
#[derive(Debug)]
pub enum NoHandlers {}

/// A worker with at least one handler. It can run. [`Worker::handler`] shows a function that returns one.
#[derive(Debug)]
pub enum WithHandlers {}

impl<S: Store, Src: Source> Worker<S, Src> {
    /// Returns a worker of this consumer. The name is part of every claim, like the name of a durable consumer or a
    /// consumer group: under another name, all messages are new.
    ///
    /// Instances of one service share a name, because they have the same handlers. Together they process each message
    /// once, and each of them runs rows that another has scheduled. During a deployment, the old and the new version
    /// share the name as well.
    ///
    /// Give each service its own name, even if services share a database. Do the same for two workers with different
    /// handlers. Two workers with one name on one queue receive each other's messages and dead-letter them (`unknown
    /// type`). On two queues, each still has rows in the inbox that the other cannot run. A worker warns of such rows
    /// when it starts. It refuses to start if no worker has had their handler for a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)), because then probably no worker will ever run them.
    pub fn new(consumer: impl Into<String>, store: S, source: Src) -> Self {
        Self {
            consumer: consumer.into(),
            store,
            source,
            state: Arc::new(()),
            codec: Arc::new(Json),
            handlers: Vec::new(),
            settings: Settings::default(),
            health: Health::new(),
            gate: SuspectLock::process(),
            stage: PhantomData,
        }
    }
}

impl<S: Store, Src: Source, St, C> Worker<S, Src, St, C, NoHandlers> {
    /// Sets the state, which handlers extract as [`State`](crate::State).
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; #[derive(Clone)] struct App { rates: std::sync::Arc<str> }
    /// # fn add<S: Store>(store: S, orders: impl Source) {
    /// // Before the handlers. One that takes `State<App>` gets a clone for each message.
    /// let worker = Worker::new("billing", store, orders).state(App { rates: "eur".into() });
    /// # }
    /// ```
    pub fn state<T>(self, state: T) -> Worker<S, Src, T, C, NoHandlers> {
        let Self { consumer, store, source, codec, handlers, settings, health, gate, stage, .. } = self;
        let state = Arc::new(state);
        Worker { consumer, store, source, state, codec, handlers, settings, health, gate, stage }
    }

    /// Sets the codec; JSON by default. A handler may have its own, [`HandlerOptions::codec`](crate::HandlerOptions::codec).
    pub fn codec<D>(self, codec: D) -> Worker<S, Src, St, D, NoHandlers> {
        let Self { consumer, store, source, state, handlers, settings, health, gate, stage, .. } = self;
        let codec = Arc::new(codec);
        Worker { consumer, store, source, state, codec, handlers, settings, health, gate, stage }
    }
}

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Sets how many deliveries are processed at once, each on its own connection; 16 by default. This is also the
    /// prefetch, from 1 to 65535. With [`inbox`](Self::inbox) it is only the prefetch.
    pub fn concurrency(mut self, deliveries: usize) -> Self {
        self.settings.concurrency = deliveries;
        self
    }

    /// Takes deliveries in batches of at most this size; 1 by default, which disables batches. Deliveries that are
    /// available are processed together, in one transaction with one commit, and each is settled by its own outcome.
    /// [`concurrency`](Self::concurrency) is then the number of batches at once. The prefetch is twice what these
    /// batches hold, so that the next batch is available when one ends.
    ///
    /// A message that fails rolls back its batch. The other messages run again without it. It is then run alone, and
    /// only that run counts as an attempt. A handler therefore runs more often than without batches, and so do its
    /// effects outside the transaction. If batches deadlock because their handlers write the same rows in different
    /// orders, they become smaller and run one at a time until no deadlock has occurred for a while.
    ///
    /// A handler must not end the transaction. In a batch the database rejects its COMMIT, and after its ROLLBACK
    /// nothing can be written. Its message becomes a dead letter. The others run again without it, some of them several
    /// times in vain.
    ///
    /// The handlers of a batch share one session. PostgreSQL: if a handler changes the role, search path, row security,
    /// replication role, time zone or date style, the batch is split, so that no other handler runs under the change.
    /// Any other `SET LOCAL` lasts until the end of the batch, unless the store is configured to reset the session
    /// between messages, which costs one round trip per message. A batch with an order is an error at the start.
    ///
    /// ```
    /// # use std::time::Duration; use idem_core::*; fn add<S: Store>(store: S, readings: impl Source) {
    /// // Four batches at a time, of up to 100, each with one commit.
    /// let worker = Worker::new("meters", store, readings).batch(100).concurrency(4).linger(Duration::from_millis(20));
    /// # }
    /// ```
    pub fn batch(mut self, deliveries: usize) -> Self {
        self.settings.batch = deliveries;
        self
    }

    /// Sets how long a batch that is not full waits for more deliveries; zero by default. At low load, each message
    /// takes that much longer.
    pub fn linger(mut self, wait: Duration) -> Self {
        self.settings.linger = wait;
        self
    }

    /// Sets how many rows of the inbox run at once, besides the deliveries, each on its own connection; 4 by default.
    /// With [`inbox`](Self::inbox) all messages run from the inbox, and the default is that of
    /// [`concurrency`](Self::concurrency).
    pub fn inbox_concurrency(mut self, rows: usize) -> Self {
        self.settings.inbox_concurrency = Some(rows);
        self
    }

    /// Stores each message in the inbox, acks it, and then runs it from there, with the same handlers, tables and
    /// guarantee. Off by default: a message runs when it is delivered, and is acked when it is processed.
    ///
    /// Use it if a handler takes longer than the broker waits for an ack, or if slow handlers must not fill up the
    /// broker. Each delivery is settled within milliseconds, whatever its outcome, and the backlog is in the database.
    /// `concurrency` is then only the prefetch. Deliveries that are available are stored together, up to 100 messages
    /// per commit.
    ///
    /// The cost is one row written and deleted per message, one commit per batch stored and one per batch taken, and
    /// therefore a few milliseconds from the delivery to the handler (the histogram `idem_inbox_wait_seconds`).
    /// Messages run in no particular order. A worker on another machine finds rows stored here only when it polls
    /// ([`poll_interval`](Self::poll_interval)).
    ///
    /// Combining it with an order is an error when the worker starts.
    ///
    /// ```
    /// # use idem_core::{Source, Store, Worker}; fn add<S: Store>(store: S, invoices: impl Source) {
    /// // Each invoice takes minutes: eight of them run at once, and the queue does not wait for them.
    /// let worker = Worker::new("invoices", store, invoices).inbox().inbox_concurrency(8);
    /// # }
    /// ```
    pub fn inbox(mut self) -> Self {
        self.settings.inbox = true;
        self
    }

    /// Sets how long a handler may run; 30 seconds by default. A handler that runs longer is dropped, which rolls back,
    /// and counts as failed. The timeout does not cover COMMIT. A handler may have its own,
    /// [`HandlerOptions::timeout`](crate::HandlerOptions::timeout).
    pub fn handler_timeout(mut self, handler_timeout: Duration) -> Self {
        self.settings.handler_timeout = handler_timeout;
        self
    }

    /// Sets how long a codec may take to [prepare](crate::Codec::prepare) for a message; 10 seconds by default. A
    /// preparation that takes longer is dropped and tried again, with increasing delays of up to one minute. A timeout
    /// counts as unavailable and never makes the message a dead letter. JSON needs no preparation.
    pub fn prepare_timeout(mut self, limit: Duration) -> Self {
        self.settings.prepare_timeout = limit;
        self
    }

    /// Sets when and how often a message whose handler failed runs again; 5 attempts by default. A handler
    /// may have its own policy, [`HandlerOptions::retry`](crate::HandlerOptions::retry).
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// Sets the maximum payload size in bytes; 1 MiB by default. A larger payload is never decoded; it is kept whole as
    /// a dead letter.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.settings.max_payload = bytes;
        self
    }

    /// Sets how long a row taken from the inbox stays leased to this worker before it runs; 10 seconds by default.
    /// While it runs, the row is locked. After a crash, the row waits until the lease expires. Zero is an error.
    pub fn lease_duration(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Sets how often the worker polls the inbox; every second by default. Rows that this worker itself schedules wake
    /// it earlier. Zero is an error.
    pub fn poll_interval(mut self, every: Duration) -> Self {
        self.settings.poll = every;
        self
    }

    /// Sets how long a shutdown waits for running handlers; 30 seconds by default. After that, handlers are dropped,
    /// which rolls back, and their deliveries are released.
    pub fn shutdown_timeout(mut self, patience: Duration) -> Self {
        self.settings.drain = patience;
        self
    }

    /// Returns a handle to the health of this worker. Call it before the worker runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }
}

/// The stage of a worker that can run.
#[diagnostic::on_unimplemented(
    message = "this worker has no handlers",
    label = "a worker without handlers cannot run",
    note = "add one first: `.handler::<your_handler>()`, where `your_handler` is a function with `#[idempotent(..)]`"
)]
pub trait HasHandlers: Send + 'static {}

impl HasHandlers for WithHandlers {}

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Runs until `shutdown` completes, and then drains: it starts no new delivery, releases deliveries that it holds,
    /// and waits up to [`shutdown_timeout`](Self::shutdown_timeout) for those that run.
    ///
    /// Dropping the future ends the worker at once, like a crash, without harm: running transactions are rolled back,
    /// and the broker delivers again.
    ///
    /// # Errors
    /// At the start: settings that would lose or repeat messages; a broker that can redeliver messages older than the
    /// retained claims; a pool that is too small; two handlers with the same name, or for one event
    /// without [`fan_out`](Self::fan_out); inbox rows of handlers
    /// that this worker does not have and that no worker has had for a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)); a database or a broker that cannot be used. Once the worker
    /// runs, only `shutdown` ends it, or a panic in one of its own tasks, which is a defect of idem, of a store or of a
    /// source: then it drains and returns [`Error::Panicked`]. A panic in a handler, a key, a fingerprint or a codec is
    /// a failure of its message.
    pub async fn run_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error>
    where
        Stage: HasHandlers,
    {
        super::run::until(self.into_parts(), shutdown).await
    }

    fn into_parts(self) -> super::parts::Parts<S, Src> {
        let Self { consumer, store, source, handlers, settings, health, gate, .. } = self;
        super::parts::Parts { consumer, store, source, handlers, settings, health, gate }
    }
}

impl<S, Src, St, C, Stage> std::fmt::Debug for Worker<S, Src, St, C, Stage> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("consumer", &self.consumer).finish_non_exhaustive()
    }
}
