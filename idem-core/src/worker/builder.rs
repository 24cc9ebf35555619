//! The builder of a worker.

use std::marker::PhantomData;
use std::sync::Arc;

use crate::registry::{Bound, Registered};
use crate::runtime::{Health, Settings};
use crate::{Codec, Extract, Handler, HandlerCodec, HandlerOptions, HasConnection, Json, Source, Store};

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
    pub(super) parts: Parts<S, Src>,
    state: Arc<St>,
    codec: Arc<C>,
    stage: PhantomData<Stage>,
}

/// The parts of a worker, with the types of its state, codec and handlers erased.
pub(super) struct Parts<S, Src> {
    pub(super) consumer: String,
    pub(super) store: S,
    pub(super) source: Src,
    pub(super) handlers: Vec<Arc<dyn Registered<S>>>,
    pub(super) settings: Settings,
    pub(super) health: Health,
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
    /// when it starts, and each hour of those that have waited for a day. It refuses to start if no worker has had their handler for a day
    /// ([`SEEN_RECENTLY`](crate::store::SEEN_RECENTLY)), because then probably no worker will ever run them.
    pub fn new(consumer: impl Into<String>, store: S, source: Src) -> Self {
        let parts = Parts {
            consumer: consumer.into(),
            store,
            source,
            handlers: Vec::new(),
            settings: Settings::default(),
            health: Health::new(),
        };
        Self { parts, state: Arc::new(()), codec: Arc::new(Json), stage: PhantomData }
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
        Worker { parts: self.parts, state: Arc::new(state), codec: self.codec, stage: self.stage }
    }

    /// Sets the codec; JSON by default. A handler may have its own,
    /// [`HandlerOptions::codec`](crate::HandlerOptions::codec).
    pub fn codec<D>(self, codec: D) -> Worker<S, Src, St, D, NoHandlers> {
        Worker { parts: self.parts, state: self.state, codec: Arc::new(codec), stage: self.stage }
    }
}

impl<S: Store, Src: Source, St, C, Stage> Worker<S, Src, St, C, Stage> {
    /// Returns its name, its handlers and its settings, by which a request stages local messages.
    pub(crate) fn for_local_messages(&self) -> (String, Vec<Arc<dyn Registered<S>>>, Settings) {
        let Parts { consumer, handlers, settings, .. } = &self.parts;
        (consumer.clone(), handlers.clone(), settings.clone())
    }

    /// Adds a handler, with the worker's timeout, retry policy and codec; [`handler_options`](Self::handler_options) gives it
    /// its own. If several handlers share the queue, all but one must name their event type, and each its own;
    /// [`fan_out`](Self::fan_out) lets several handle the same.
    ///
    /// ```
    /// # use idem_core::{Worker, WithHandlers, Json, Store, Source, Handler, HasConnection};
    /// # struct App;
    /// // The type of a worker that is ready to run, for a function that returns it.
    /// fn billing<S, Src, OrderPaid>(store: S, orders: Src) -> Worker<S, Src, App, Json, WithHandlers>
    /// where
    ///     S: Store + HasConnection<OrderPaid::Connection>,
    ///     Src: Source,
    ///     OrderPaid: Handler<Params = (), Message: serde::de::DeserializeOwned>,
    /// {
    ///     Worker::new("billing", store, orders).state(App).handler::<OrderPaid>()
    /// }
    /// ```
    pub fn handler<H>(self) -> Worker<S, Src, St, C, WithHandlers>
    where
        H: Handler,
        S: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Send + Sync + 'static,
        C: Codec<H::Message>,
    {
        self.handler_options::<H>(HandlerOptions::new())
    }

    /// Adds a handler with its own options: a timeout, a retry policy or a codec. Anything not set falls back to the
    /// worker's option, whichever is called first.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use idem_core::{Worker, HandlerOptions, Store, Source, Handler, HasConnection};
    /// # fn add<S: Store + HasConnection<Report::Connection> + HasConnection<Paid::Connection>, Paid: Handler<Params = (), Message: serde::de::DeserializeOwned>, Report: Handler<Params = (), Message: serde::de::DeserializeOwned>>(store: S, orders: impl Source) {
    /// Worker::new("billing", store, orders)
    ///     .handler::<Paid>()
    ///     .handler_options::<Report>(HandlerOptions::new().timeout(Duration::from_secs(300)));
    /// # }
    /// ```
    pub fn handler_options<H>(
        self,
        options: HandlerOptions<impl HandlerCodec<C, H::Message>>,
    ) -> Worker<S, Src, St, C, WithHandlers>
    where
        H: Handler,
        S: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Send + Sync + 'static,
    {
        let Self { mut parts, state, codec, .. } = self;
        let HandlerOptions { codec: chosen, limits } = options;
        let codec_of_handler = chosen.or_of_worker(&codec);
        parts.handlers.push(Arc::new(Bound::<H, St, _>::new(state.clone(), codec_of_handler, limits)));
        Worker { parts, state, codec, stage: PhantomData }
    }

    /// Returns a handle to the health of this worker. Call it before the worker runs.
    pub fn health(&self) -> Health {
        self.parts.health.clone()
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

impl<S, Src, St, C, Stage> std::fmt::Debug for Worker<S, Src, St, C, Stage> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Worker").field("consumer", &self.parts.consumer).finish_non_exhaustive()
    }
}
