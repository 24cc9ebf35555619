//! The names of items, and the values of their attributes.

use std::collections::HashMap;

use aws_sdk_dynamodb::primitives::Blob;
use aws_sdk_dynamodb::types::AttributeValue;

pub(crate) type Attributes = HashMap<String, AttributeValue>;

/// The name of an item: its table and its key.
///
/// ```
/// use idem_dynamodb::Item;
/// let stock = Item::of("stock", "sku", "book");
/// let day = Item::of("sales", "shop", 7).and("day", "2026-12-01");
/// # let _ = (stock, day);
/// ```
#[derive(Clone, PartialEq)]
pub struct Item {
    pub(crate) table: String,
    pub(crate) key: Attributes,
}

impl Item {
    /// Returns the item of this table, by the name or the ARN of the table, with this value of the partition key.
    pub fn of(table: impl Into<String>, key: impl Into<String>, value: impl Into<Value>) -> Self {
        Self { table: table.into(), key: HashMap::new() }.and(key, value)
    }

    /// Adds the sort key.
    pub fn and(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.key.insert(key.into(), value.into().0);
        self
    }
}

/// Shows no value of the key: it may be personal data.
impl std::fmt::Debug for Item {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Item").field("table", &self.table).finish_non_exhaustive()
    }
}

/// A value of an attribute: made of a text, bytes, a number, a `bool`, or an [`AttributeValue`], such as those of `serde_dynamo`.
#[derive(Debug, Clone, PartialEq)]
pub struct Value(pub(crate) AttributeValue);

impl From<AttributeValue> for Value {
    fn from(value: AttributeValue) -> Self {
        Self(value)
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self(AttributeValue::S(text.to_owned()))
    }
}

impl From<&String> for Value {
    fn from(text: &String) -> Self {
        text.as_str().into()
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self(AttributeValue::S(text))
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self(AttributeValue::B(Blob::new(bytes)))
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self(AttributeValue::Bool(value))
    }
}

macro_rules! numbers {
    ($($number:ty),*) => {
        $(impl From<$number> for Value {
            fn from(number: $number) -> Self {
                Self(AttributeValue::N(number.to_string()))
            }
        })*
    };
}

numbers!(i32, i64, u32, u64, usize, f64);
