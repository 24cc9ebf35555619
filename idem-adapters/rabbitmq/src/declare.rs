//! Queues that are looked at or declared before they are consumed.

use std::pin::Pin;
use std::sync::Arc;

use idem_core::Error;
use lapin::types::FieldTable;

use crate::argument::Argument;
use crate::bare::Bare;
use crate::classic;
use crate::config::Config;
use crate::limit::Limits;
use crate::queue_type::{self, Examined};
use crate::request::{Expected, Request};
use crate::source::Queue;

/// A future without a name.
type Sending = Pin<Box<dyn Future<Output = Result<Queue, Error>> + Send>>;

/// An existing queue that is asked for: `.await` looks at it, and gives the [`Queue`].
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
    /// An argument of the consumer, as `x-priority`.
    pub fn consumer_argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.request.consumer_argument(name.into(), value.into());
        self
    }
}

impl IntoFuture for Existing {
    type Output = Result<Queue, Error>;
    type IntoFuture = Sending;

    fn into_future(self) -> Sending {
        Box::pin(send(self.request, self.config, self.name))
    }
}

/// A queue that is to be declared: `.await` declares and binds it, and gives the [`Queue`].
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
pub struct Declare {
    pub(crate) config: Arc<Config>,
    pub(crate) name: String,
    pub(crate) request: Request,
}

impl Declare {
    /// An argument of the queue, as `x-single-active-consumer` or `x-max-length`. A queue that is there with another value is
    /// refused, since a queue's arguments cannot be changed.
    pub fn argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.request.argument(name.into(), value.into());
        self
    }

    /// Binds the queue to an exchange, which must exist, for this routing key.
    pub fn bind(self, exchange: impl Into<String>, routing_key: impl Into<String>) -> Self {
        self.bind_with(exchange, routing_key, [] as [(&str, Argument); 0])
    }

    /// Binds the queue with arguments, as an exchange by headers wants them (`x-match` and the headers).
    pub fn bind_with(
        mut self,
        exchange: impl Into<String>,
        routing_key: impl Into<String>,
        arguments: impl IntoIterator<Item = (impl Into<String>, impl Into<Argument>)>,
    ) -> Self {
        let arguments = arguments.into_iter().map(|(name, value)| (name.into(), value.into())).collect();
        self.request.bind(exchange.into(), routing_key.into(), arguments);
        self
    }

    /// An argument of the consumer, as `x-priority`.
    pub fn consumer_argument(mut self, name: impl Into<String>, value: impl Into<Argument>) -> Self {
        self.request.consumer_argument(name.into(), value.into());
        self
    }
}

impl IntoFuture for Declare {
    type Output = Result<Queue, Error>;
    type IntoFuture = Sending;

    fn into_future(self) -> Sending {
        Box::pin(send(self.request, self.config, self.name))
    }
}

/// Looks at the queue, or declares it.
async fn send(request: Request, config: Arc<Config>, name: String) -> Result<Queue, Error> {
    request.check(&name)?;
    let mut bare = Bare::open(&config).await?;
    let limits = Limits::of(&bare, &config);
    let queue = Examined { address: &config.address, name: &name, request: &request, limits };
    let found = queue_type::verify(&mut bare, queue, FieldTable::default()).await;
    bare.close().await;
    let found = found?;
    if request.expected == Expected::Classic {
        classic::warn(&name);
    }
    Ok(Queue::new(config, name, request, found))
}
