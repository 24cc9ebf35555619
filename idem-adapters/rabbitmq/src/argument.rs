//! Argument values.

use lapin::types::AMQPValue;

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
