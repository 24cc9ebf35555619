//! The request for a queue, before it is consumed: its arguments and bindings.

use idem_core::Error;
use lapin::protocol::{AMQPErrorKind, AMQPSoftError};
use lapin::types::{AMQPValue, FieldTable, ShortString};

use crate::address::Address;
use crate::error::answer;
use crate::limits;
use crate::raw::Raw;

/// The value of an argument of a queue, a binding or a consumer: a string, a boolean or an integer.
///
/// ```no_run
/// # use idem_rabbitmq::Argument;
/// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
/// // A headers exchange: both headers must match.
/// let both: [(&str, Argument); 3] = [("x-match", "all".into()), ("region", "eu".into()), ("express", true.into())];
/// let queue = rabbit.declare("express").argument("x-quorum-initial-group-size", 3).bind_with("by-header", "", both);
/// let orders = queue.await?;
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct Argument(pub(crate) AMQPValue);

impl From<&str> for Argument {
    fn from(text: &str) -> Self {
        Self(AMQPValue::LongString(text.into()))
    }
}

impl From<String> for Argument {
    fn from(text: String) -> Self {
        Self(AMQPValue::LongString(text.into()))
    }
}

impl From<bool> for Argument {
    fn from(value: bool) -> Self {
        Self(AMQPValue::Boolean(value))
    }
}

impl From<i32> for Argument {
    fn from(number: i32) -> Self {
        Self(AMQPValue::LongInt(number))
    }
}

impl From<i64> for Argument {
    fn from(number: i64) -> Self {
        Self(AMQPValue::LongLongInt(number))
    }
}

/// The caller's knowledge about a queue before it is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    /// It is declared if it does not exist.
    Declared,
    /// It exists, and its type must be checked.
    Existing,
    /// It exists, and the caller states that it is a quorum queue.
    Unverified,
    /// It exists and is a classic queue, which the caller accepts.
    Classic,
}

/// A requested queue.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) expected: Expected,
    /// The requested arguments, in addition to those that idem sets.
    pub(crate) arguments: FieldTable,
    pub(crate) bindings: Vec<Binding>,
    /// Whether the caller stated that this queue has no delivery limit.
    pub(crate) unlimited: bool,
    /// Whether the caller accepts that the queue deletes messages that were not processed.
    pub(crate) may_delete: bool,
    /// The arguments of the consumer.
    pub(crate) consumer: FieldTable,
    /// The first part that cannot be sent.
    refused: Option<String>,
}

impl Request {
    pub(crate) fn new(expected: Expected) -> Self {
        let (arguments, consumer) = (FieldTable::default(), FieldTable::default());
        Self { expected, arguments, bindings: Vec::new(), unlimited: false, may_delete: false, consumer, refused: None }
    }

    /// Returns a short string. A longer text is recorded as refused, because lapin panics on it.
    fn short(&mut self, what: &str, text: String) -> ShortString {
        ShortString::try_new(text).unwrap_or_else(|_| {
            let text = format!("{what} has more than 255 bytes, which AMQP does not allow: give a shorter one");
            self.refused.get_or_insert(text);
            ShortString::default()
        })
    }

    pub(crate) fn argument(&mut self, name: String, value: Argument) {
        if name == "x-queue-type" || name == limits::ARGUMENT {
            let text = format!(
                "{name} is not an argument for .declare(..), which sets it itself: it declares a quorum queue without a \
                 delivery limit"
            );
            self.refused.get_or_insert(text);
        }
        let name = self.short("the name of an argument of a queue", name);
        self.arguments.insert(name, value.0);
    }

    pub(crate) fn consumer_argument(&mut self, name: String, value: Argument) {
        let name = self.short("the name of an argument of a consumer", name);
        self.consumer.insert(name, value.0);
    }

    pub(crate) fn bind(&mut self, exchange: String, routing_key: String, arguments: Vec<(String, Argument)>) {
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

    /// Refuses a request that cannot be sent for a queue with this name.
    pub(crate) fn check(&self, name: &str) -> Result<(), Error> {
        if let Some(refused) = &self.refused {
            return Err(Error::Config(format!("queue `{name}` cannot be asked for: {refused}")));
        }
        if name.is_empty() || ShortString::try_new(name).is_err() {
            return Err(Error::Config(format!(
                "a queue's name has 1 to 255 bytes, and this one has {}: give the name of the queue",
                name.len()
            )));
        }
        Ok(())
    }
}

/// A binding.
#[derive(Debug, Clone)]
pub(crate) struct Binding {
    pub(crate) exchange: ShortString,
    pub(crate) routing_key: ShortString,
    pub(crate) arguments: FieldTable,
}

/// Binds a queue. Existing bindings remain.
pub(crate) async fn bind(raw: &mut Raw, address: &Address, name: &str, bindings: &[Binding]) -> Result<(), Error> {
    for binding in bindings {
        let Binding { exchange, routing_key, arguments } = binding.clone();
        let bound = raw.bind(name, exchange, routing_key, arguments).await;
        bound.map_err(|error| failed(address, name, binding, error))?;
    }
    Ok(())
}

fn failed(address: &Address, name: &str, binding: &Binding, error: lapin::Error) -> Error {
    let Binding { exchange, routing_key, .. } = binding;
    let what = format!("queue `{name}` cannot be bound to exchange `{exchange}` for `{routing_key}` on {address}");
    match answer(&error) {
        Some((AMQPErrorKind::Soft(AMQPSoftError::NOTFOUND), text)) => Error::Config(format!(
            "{what}: declare the exchange there, since idem declares none. The server says: {text}"
        )),
        Some((AMQPErrorKind::Soft(AMQPSoftError::ACCESSREFUSED), text)) => Error::Config(format!(
            "{what}: grant the user `write` on the queue and `read` on the exchange, or bind it as another user. The server \
             says: {text}"
        )),
        _ => Error::broker(what, error),
    }
}
