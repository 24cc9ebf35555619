//! What a worker is made of.

use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use crate::registry::{Bound, Registered};
use crate::{Codec, Error, Extract, Handler, HasConnection, Json, RetryPolicy, Source, Store};

use crate::runtime::{Health, Settings, SuspectLock};

/// The running loop of one source and its handlers, under one consumer name.
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
/// # use std::time::Duration;
/// # use idem_core::{Worker, RetryPolicy, Store, Source, Handler, HasConnection, Error};
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
    state: Arc<St>,
    codec: Arc<C>,
    pub(super) handlers: Vec<Arc<dyn Registered<S>>>,
    pub(super) settings: Settings,
    pub(super) health: Health,
    pub(super) gate: SuspectLock,
    stage: PhantomData<Stage>,
}

/// A worker without handlers: state and codec can still be given.
#[derive(Debug)]
pub enum NoHandlers {}

/// A worker with handlers: it can run.
#[derive(Debug)]
pub enum WithHandlers {}

impl<S: Store, Src: Source> Worker<S, Src> {
    /// A worker of this consumer. The name is part of every claim, as that of a durable or a consumer group: under
    /// another name, all messages are new.
    ///
    /// Copies of one service share a name, since they have the same handlers: together they process each message once, and
    /// any of them runs what another has scheduled. During a deploy, so do its old and its new version.
    ///
    /// Give each service a name of its own, even if services share a database, and do so for two workers with different
    /// handlers as well. Under one name, two workers at one queue take each other's messages, and make dead letters of them
    /// (`unknown type`). Even at two queues, each has rows in the inbox which the other cannot run. A worker that starts
    /// warns of such rows, and refuses to start where no worker has had their handler for a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)): it looks as if nobody would ever run them.
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
    /// With state, from which handlers take [`State`](crate::State).
    pub fn state<T>(self, state: T) -> Worker<S, Src, T, C, NoHandlers> {
        let Self { consumer, store, source, codec, handlers, settings, health, gate, stage, .. } = self;
        let state = Arc::new(state);
        Worker { consumer, store, source, state, codec, handlers, settings, health, gate, stage }
    }

    /// With another codec than JSON.
    pub fn codec<D>(self, codec: D) -> Worker<S, Src, St, D, NoHandlers> {
        let Self { consumer, store, source, state, handlers, settings, health, gate, stage, .. } = self;
        let codec = Arc::new(codec);
        Worker { consumer, store, source, state, codec, handlers, settings, health, gate, stage }
    }
}

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Adds a handler. Where several share the queue, each but one must name its type of event.
    pub fn handler<H>(self) -> Worker<S, Src, St, C, WithHandlers>
    where
        H: Handler,
        S: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Send + Sync + 'static,
        C: Codec<H::Message>,
    {
        let Self { consumer, store, source, state, codec, mut handlers, settings, health, gate, .. } = self;
        handlers.push(Arc::new(Bound::<H, St, C> { state: state.clone(), codec: codec.clone(), handler: PhantomData }));
        Worker { consumer, store, source, state, codec, handlers, settings, health, gate, stage: PhantomData }
    }

    /// How many deliveries are worked on at once, each with a connection of its own; 16 by default. It is the prefetch
    /// as well. With [`inbox`](Self::inbox) it is the prefetch alone.
    pub fn concurrency(mut self, deliveries: usize) -> Self {
        self.settings.concurrency = deliveries;
        self
    }

    /// Takes deliveries in batches of at most so many; 1 by default, which is none. What is there is taken together, in one
    /// transaction with one commit, and each delivery is settled by its own verdict. [`concurrency`](Self::concurrency) then is
    /// the number of batches at once, and the prefetch covers all of them twice, so that the next one is there when one ends.
    ///
    /// A message that fails takes the others of its batch with it for one round: they run again without it, and it runs
    /// alone, which is where it is charged. So a handler runs more often than without batches, and what it does outside of
    /// the transaction is done more often. Where batches deadlock, since their handlers write the same rows in different
    /// orders, they become smaller and run one at a time until it has been quiet for a while.
    ///
    /// A handler must not end the transaction. In a batch the database refuses its COMMIT, and behind its ROLLBACK nothing can
    /// be written; its message becomes a dead letter, and the others run again without it, some of them several times in vain.
    ///
    /// The handlers of a batch share one session. PostgreSQL: a batch in which one of them changes its role, search path, row
    /// security, replication role, time zone or date style is split, so that no other runs under that. Any other `SET LOCAL`
    /// lasts until the end of the batch, unless the store is told to reset the session between messages, which costs a round
    /// trip each.
    pub fn batch(mut self, deliveries: usize) -> Self {
        self.settings.batch = deliveries;
        self
    }

    /// How long a batch that is not full waits for more; not at all by default. It is added to the time that each message
    /// takes when there is little to do.
    pub fn linger(mut self, wait: Duration) -> Self {
        self.settings.linger = wait;
        self
    }

    /// How many rows of the inbox are run at once, beside the deliveries, each with a connection of its own; 4 by
    /// default. With [`inbox`](Self::inbox) all messages run from there, so that the default is that of
    /// [`concurrency`](Self::concurrency).
    pub fn inbox_concurrency(mut self, rows: usize) -> Self {
        self.settings.inbox_concurrency = Some(rows);
        self
    }

    /// Stores each message in the inbox, acks it, and then runs it from there: the same handlers, the same tables, the
    /// same guarantee. Off by default: a message runs as it is delivered, and is acked when it is processed.
    ///
    /// Use it where a handler takes longer than a broker waits for an ack, or where the broker must not fill up because the
    /// handlers are slow: a delivery is settled within milliseconds, whatever becomes of its message, and the backlog is in
    /// the database. `concurrency` is then no more than the prefetch; what is there is stored together, up to 100 messages
    /// with one commit.
    ///
    /// What it costs: a row that is written and deleted for each message, a commit for each batch that is stored and for each
    /// that is taken, and so a few milliseconds from the delivery to the handler (the histogram
    /// `idem_inbox_wait_seconds`). Messages run in no order. A worker on another machine finds rows that were stored here
    /// by its [`poll_interval`](Self::poll_interval).
    ///
    /// Refused at the start together with an order.
    pub fn inbox(mut self) -> Self {
        self.settings.inbox = true;
        self
    }

    /// How long a handler may run; 30 seconds by default. One that runs longer is dropped, which rolls back, and has
    /// failed. It ends before COMMIT starts.
    pub fn handler_timeout(mut self, deadline: Duration) -> Self {
        self.settings.deadline = deadline;
        self
    }

    /// How long a codec may take to [prepare](crate::Codec::prepare) for a message; 10 seconds by default. A preparation that
    /// takes longer is dropped and tried again, later each time, up to once a minute. Its message counts as not available, and
    /// never becomes a dead letter by that. JSON needs no preparation.
    pub fn prepare_timeout(mut self, limit: Duration) -> Self {
        self.settings.prepare_timeout = limit;
        self
    }

    /// When a message whose handler failed runs again, and how often; 5 attempts by default.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.settings.retry = policy;
        self
    }

    /// The longest payload, in bytes; 1 MiB by default. A longer one is kept whole as a dead letter and never decoded.
    pub fn max_payload(mut self, bytes: usize) -> Self {
        self.settings.max_payload = bytes;
        self
    }

    /// For how long a row that was taken from the inbox is ours before it has begun; 10 seconds by default. Once it
    /// runs it is locked for as long as it runs. After a crash its row waits for the end of the lease.
    pub fn lease_duration(mut self, lease: Duration) -> Self {
        self.settings.lease = lease;
        self
    }

    /// How often the inbox is looked through; every second by default. What this worker schedules itself wakes it.
    pub fn poll_interval(mut self, every: Duration) -> Self {
        self.settings.poll = every;
        self
    }

    /// How long a shutdown waits for what runs; 30 seconds by default. Then handlers are dropped, which rolls back, and
    /// their deliveries are released.
    pub fn shutdown_timeout(mut self, patience: Duration) -> Self {
        self.settings.drain = patience;
        self
    }

    /// Whether it is fit for work. Take it before the worker runs.
    pub fn health(&self) -> Health {
        self.health.clone()
    }
}

impl<S: Store, Src: Source, St, C> Worker<S, Src, St, C, WithHandlers> {
    /// Runs until `shutdown` is ready, and then drains: no new delivery is begun, what is held is released, what runs is
    /// finished within the [`shutdown_timeout`](Self::shutdown_timeout).
    ///
    /// Dropping the future ends the worker at once, as a crash would, without harm: what runs is rolled back, and the
    /// broker delivers again.
    ///
    /// # Errors
    /// At the start: settings that would lose or repeat messages, a broker that can deliver again what is older than
    /// the claims that are kept, a pool that is too small, two handlers of one
    /// name or one type of event, inbox rows of handlers that are not here and that no worker has had for a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)), a database or a broker that cannot be used.
    /// Once it runs, nothing but `shutdown` ends it, except a panic in a task of the worker itself, which is a defect of
    /// idem, of a store or of a source: it drains, and answers [`Error::Panicked`]. What panics in a handler, a key, a
    /// fingerprint or a codec is a failure of its message.
    pub async fn run_until(self, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
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
