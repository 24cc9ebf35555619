//! Values of arguments.

use lapin::types::AMQPValue;

/// The value of an argument of a queue, a binding or a consumer: a string, a boolean or an integer.
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
