//! The request for a queue, before it is consumed.

use idem_core::Error;
use lapin::types::{FieldTable, ShortString};

use crate::argument::Argument;
use crate::bindings::Binding;
use crate::limit;

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
        if name == "x-queue-type" || name == limit::ARGUMENT {
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
