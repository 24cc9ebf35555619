//! Queues before they are consumed: awaiting one checks or declares it.

use std::pin::Pin;
use std::sync::Arc;

use idem_core::Error;

use crate::config::Config;
use crate::limits::Limits;
use crate::queue_type::{self, Examined};
use crate::raw::Raw;
use crate::request::{Argument, Request};
use crate::source::Queue;

/// A boxed future.
type Sending = Pin<Box<dyn Future<Output = Result<Queue, Error>> + Send>>;

/// A request for an existing queue: `.await` checks it and returns the [`Queue`].
///
/// ```no_run
/// # async fn queue(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
/// let orders = rabbit.queue("orders").consumer_argument("x-priority", 10).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "it is looked at when it is awaited"]
pub struct Existing {
    pub(crate) config: Arc<Config>,
    pub(crate) name: String,
    pub(crate) request: Request,
}

impl Existing {
    /// Sets an argument of the consumer, such as `x-priority`.
    pub fn consumer_argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.request.consumer_argument(name.into(), value.into());
        self
    }

    /// States that this queue drops no message, however often it is returned: it was declared with `x-delivery-limit=-1`
    /// ([`queue_unverified`](crate::RabbitMq::queue_unverified) cannot read that), or a policy lifts its limit, as in
    /// [`delivery_limit_by_policy`](crate::Options::delivery_limit_by_policy). If that is wrong, RabbitMQ 4 drops each
    /// message at its 21st return.
    pub fn without_delivery_limit(mut self) -> Self {
        self.request.unlimited = true;
        self
    }

    /// Accepts a queue that deletes messages that were never processed, which is refused otherwise: by `x-expires`,
    /// `x-message-ttl`, or `x-max-length` and `x-max-length-bytes` without `x-overflow=reject-publish`.
    ///
    /// **Those messages are lost** (or dead-lettered, if the queue has a dead-letter exchange), without a line in idem's log:
    /// in an outage of the database, for example. A worker does not leave a queue with `x-expires` in a long outage: its
    /// consumer keeps the queue for as long as the server's consumer timeout.
    pub fn may_delete_unprocessed(mut self) -> Self {
        self.request.may_delete = true;
        self
    }
}

impl IntoFuture for Existing {
    type Output = Result<Queue, Error>;
    type IntoFuture = Sending;

    fn into_future(self) -> Sending {
        Box::pin(async move {
            let Self { config, name, request } = self;
            request.check(&name)?;
            let mut raw = Raw::open(&config).await?;
            let limits = Limits::of(&raw, &config, request.unlimited);
            let queue = Examined { address: &config.address, name: &name, request: &request, limits };
            let found = queue_type::verify(&mut raw, queue, None).await;
            raw.close().await;
            Ok(Queue::new(config, name, request, found?))
        })
    }
}

/// A request to declare a queue: `.await` declares and binds it, and returns the [`Queue`].
///
/// ```no_run
/// # async fn declare(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
/// let orders = rabbit
///     .declare("billing-orders")
///     .bind("shop", "order.*")
///     .argument("x-single-active-consumer", true)
///     .await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
#[must_use = "it is declared when it is awaited"]
pub struct Declare(pub(crate) Existing);

impl Declare {
    /// Sets an argument of the queue, such as `x-single-active-consumer` or `x-max-length`. An existing queue with
    /// another value is refused, because the arguments of a queue cannot be changed.
    ///
    /// Arguments that make the queue delete messages that were never processed are refused, unless
    /// [`may_delete_unprocessed`](Self::may_delete_unprocessed) accepts that.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.0.request.argument(name.into(), value.into());
        self
    }

    /// Binds the queue to an existing exchange with this routing key.
    pub fn bind(self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bind_with(exchange, routing_key, [] as [(&str, Argument); 0])
    }

    /// Binds the queue with arguments, as a headers exchange requires (`x-match` and the headers).
    pub fn bind_with(
        mut self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        arguments: impl IntoIterator<Item = (impl Into<String>, impl Into<Argument>)>,
    ) -> Self {
        let arguments = arguments.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.0.request.bind(exchange.into(), routing_key.into(), arguments);
        self
    }

    /// As [`Existing::may_delete_unprocessed`].
    pub fn may_delete_unprocessed(self) -> Self {
        Self(self.0.may_delete_unprocessed())
    }

    /// Sets an argument of the consumer, such as `x-priority`.
    pub fn consumer_argument(self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        Self(self.0.consumer_argument(name, value))
    }
}

impl IntoFuture for Declare {
    type Output = Result<Queue, Error>;
    type IntoFuture = Sending;

    fn into_future(self) -> Sending {
        self.0.into_future()
    }
}
