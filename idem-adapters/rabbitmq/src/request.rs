//! What is asked of a queue before it is consumed.

use std::pin::Pin;
use std::sync::Arc;

use idem_core::Error;
use lapin::types::{FieldTable, ShortString};

use crate::argument::Argument;
use crate::bindings::Binding;
use crate::config::Config;
use crate::connection::Link;
use crate::limit;
use crate::queue_type::{self, Expected};
use crate::source::Queue;

/// A queue as it is wanted.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) expected: Expected,
    /// The arguments that it is to have, beside those that idem gives it.
    pub(crate) arguments: FieldTable,
    pub(crate) bindings: Vec<Binding>,
    /// The arguments of its consumer.
    pub(crate) consumer: FieldTable,
    /// The first of all that cannot be sent.
    refused: Option<String>,
}

impl Request {
    pub(crate) fn new(expected: Expected) -> Self {
        let (arguments, consumer) = (FieldTable::default(), FieldTable::default());
        Self { expected, arguments, bindings: Vec::new(), consumer, refused: None }
    }

    /// A short string, where it is one: lapin panics on a longer one.
    fn short(&mut self, what: &str, text: String) -> ShortString {
        ShortString::try_new(text).unwrap_or_else(|_| {
            let text = format!("{what} has more than 255 bytes, which AMQP does not allow: give a shorter one");
            self.refused.get_or_insert(text);
            ShortString::default()
        })
    }

    fn argument(&mut self, name: String, value: Argument) {
        if name == "x-queue-type" || name == limit::ARGUMENT {
            let text = format!(
                "{name} is not an argument for .declare(..), which sets it itself: idem consumes only from quorum queues, and \
                 from those without a delivery limit"
            );
            self.refused.get_or_insert(text);
        }
        let name = self.short("the name of an argument of a queue", name);
        self.arguments.insert(name, value.0);
    }

    fn consumer_argument(&mut self, name: String, value: Argument) {
        let name = self.short("the name of an argument of a consumer", name);
        self.consumer.insert(name, value.0);
    }

    fn bind(&mut self, exchange: String, routing_key: String, arguments: Vec<(String, Argument)>) {
        if exchange.is_empty() {
            let text =
                "a queue cannot be bound to the default exchange, which knows each by its name: name an exchange";
            self.refused.get_or_insert(text.to_owned());
        }
        let exchange = self.short("the name of an exchange", exchange);
        let routing_key = self.short("the routing key of a binding", routing_key);
        let mut table = FieldTable::default();
        for (name, value) in arguments {
            let name = self.short("the name of an argument of a binding", name);
            table.insert(name, value.0);
        }
        self.bindings.push(Binding { exchange, routing_key, arguments: table });
    }

    /// Looks at the queue, or declares it.
    async fn send(self, config: Arc<Config>, name: String) -> Result<Queue, Error> {
        if let Some(refused) = self.refused {
            return Err(Error::Refused(format!("queue `{name}` cannot be asked for: {refused}")));
        }
        if name.is_empty() || ShortString::try_new(name.as_str()).is_err() {
            return Err(Error::Refused(format!(
                "a queue's name has 1 to 255 bytes, and this one has {}: give the name of the queue",
                name.len()
            )));
        }
        let limits = config.limits(self.expected).await?;
        let link = Link::open(&config, &name).await?;
        let found = queue_type::verify(&link, &config, &name, &self, limits, FieldTable::default()).await;
        link.close().await;
        Ok(Queue::new(config, name, self, found?))
    }
}

/// A future without a name.
type Sending = Pin<Box<dyn Future<Output = Result<Queue, Error>> + Send>>;

/// An existing queue that is asked for: `.await` looks at it, and gives the [`Queue`].
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
        Box::pin(self.request.send(self.config, self.name))
    }
}

/// A queue that is to be declared: `.await` declares and binds it, and gives the [`Queue`].
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
        Box::pin(self.request.send(self.config, self.name))
    }
}
