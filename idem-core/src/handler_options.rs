//! The options of one handler of a worker.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{Codec, RetryPolicy};

/// Options of one handler of a worker, for [`Worker::handler_options`](crate::Worker::handler_options). Anything not set
/// falls back to the worker's option, whichever is called first.
///
/// ```
/// # use std::time::Duration;
/// # use idem_core::{Worker, HandlerOptions, RetryPolicy, Store, Source, Handler, HasConnection};
/// # fn add<S: Store + HasConnection<H::Connection>, H: Handler<Params = (), Message: serde::de::DeserializeOwned>>(
/// #     store: S, orders: impl Source) {
/// let slow = HandlerOptions::new()
///     .timeout(Duration::from_secs(300))
///     .retry(RetryPolicy::new().max_attempts(2));
/// Worker::new("billing", store, orders).handler_options::<H>(slow);
/// # }
/// ```
///
/// They belong to the worker, not to the message: an attempt follows the options of the worker that makes it. The key
/// and the fingerprint of a message are part of its claim, on which all workers must agree, so they are the handler's
/// own: `#[idempotent(key = .., fingerprint = ..)]`.
#[must_use = "options do nothing until `handler_options`"]
#[non_exhaustive]
pub struct HandlerOptions<C = WorkerCodec> {
    pub(crate) codec: C,
    pub(crate) limits: HandlerLimits,
}

/// The limits of one handler; `None`: the worker's. And what it takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct HandlerLimits {
    pub(crate) timeout: Option<Duration>,
    pub(crate) retry: Option<RetryPolicy>,
    /// Whether it takes no delivery.
    pub(crate) is_local_only: bool,
}

/// Without the codec, which may know a password of its schema registry.
impl<C> fmt::Debug for HandlerOptions<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerOptions").field("limits", &self.limits).finish_non_exhaustive()
    }
}

impl HandlerOptions {
    /// Returns options that set nothing.
    pub fn new() -> Self {
        Self { codec: WorkerCodec, limits: HandlerLimits::default() }
    }
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self::new()
    }
}

impl<C> HandlerOptions<C> {
    /// Sets how long the handler may run, instead of the worker's
    /// [`handler_timeout`](crate::Worker::handler_timeout). A handler that runs longer is dropped, which rolls back,
    /// and counts as failed.
    ///
    /// It may be longer than the worker's. A row of the inbox needs no longer [lease](crate::Worker::lease_duration)
    /// for that, since it is locked while it runs, and the lease of a delivery is extended. A broker with a fixed
    /// limit, like RabbitMQ's consumer timeout, needs a higher limit, and the source warns if it is too low for the
    /// longest timeout of the worker. A shutdown waits only for the
    /// [`shutdown_timeout`](crate::Worker::shutdown_timeout): a handler that then still runs is rolled back, and its
    /// message runs again.
    ///
    /// In a [batch](crate::Worker::batch), it bounds each call of this handler. The database bounds a single statement
    /// by the longest timeout of the handlers that share the transaction.
    ///
    /// Zero is an error when the worker starts.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.limits.timeout = Some(timeout);
        self
    }

    /// Sets when and how often a message whose handler failed runs again, instead of the worker's
    /// [`retry`](crate::Worker::retry). With an order, messages behind it wait for as long.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.limits.retry = Some(policy);
        self
    }

    /// Makes the handler take [local messages](crate::Outbox::local) only, and no delivery of the source. It then needs
    /// no event type or subject that distinguishes it from the worker's other handlers, and its key may be one that the
    /// source does not have.
    ///
    /// ```
    /// # use idem_core::{Handler, HandlerOptions, HasConnection, Source, Store, Worker};
    /// # fn add<S, Paid, Receipt>(store: S, payments: impl Source)
    /// # where
    /// #     S: Store + HasConnection<Paid::Connection> + HasConnection<Receipt::Connection>,
    /// #     Paid: Handler<Params = (), Message: serde::de::DeserializeOwned>,
    /// #     Receipt: Handler<Params = (), Message: serde::de::DeserializeOwned>,
    /// # {
    /// // Every delivery is a payment. Its handler stages receipts.
    /// Worker::new("billing", store, payments)
    ///     .handler::<Paid>()
    ///     .handler_options::<Receipt>(HandlerOptions::new().local_only());
    /// # }
    /// ```
    pub fn local_only(mut self) -> Self {
        self.limits.is_local_only = true;
        self
    }

    /// Sets the codec of this handler, instead of the worker's [`codec`](crate::Worker::codec), for a queue on which
    /// event types differ in their encoding. Its [`prepare`](Codec::prepare) has the worker's
    /// [`prepare_timeout`](crate::Worker::prepare_timeout).
    ///
    /// ```
    /// # use idem_core::{Codec, DecodeError, Delivery, HandlerOptions};
    /// /// One number as text, of a producer that knows no JSON.
    /// struct Text;
    ///
    /// impl Codec<i64> for Text {
    ///     fn decode(&self, delivery: &Delivery) -> Result<i64, DecodeError> {
    ///         Ok(std::str::from_utf8(delivery.data())?.trim().parse()?)
    ///     }
    /// }
    ///
    /// // For `.handler_options::<stock_counted>(options)`; the others keep the worker's codec.
    /// let options = HandlerOptions::new().codec(Text);
    /// ```
    pub fn codec<D>(self, codec: D) -> HandlerOptions<OwnCodec<D>> {
        HandlerOptions { codec: OwnCodec(codec), limits: self.limits }
    }
}

/// The handler decodes with the codec of its worker.
#[derive(Debug)]
#[non_exhaustive]
pub struct WorkerCodec;

/// The handler has its own codec.
#[derive(Debug)]
pub struct OwnCodec<D>(D);

/// The codec of a handler of `M`: its own, or that of its worker, `C`.
pub trait HandlerCodec<C, M> {
    /// The codec that decodes.
    type Codec: Codec<M>;

    /// Returns the codec that decodes.
    #[doc(hidden)]
    fn or_of_worker(self, worker: &Arc<C>) -> Arc<Self::Codec>;
}

impl<C: Codec<M>, M> HandlerCodec<C, M> for WorkerCodec {
    type Codec = C;

    fn or_of_worker(self, worker: &Arc<C>) -> Arc<C> {
        worker.clone()
    }
}

impl<D: Codec<M>, C, M> HandlerCodec<C, M> for OwnCodec<D> {
    type Codec = D;

    fn or_of_worker(self, _: &Arc<C>) -> Arc<D> {
        Arc::new(self.0)
    }
}
