//! What a handler writes to DynamoDB.

use std::collections::HashMap;
use std::fmt;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::types::{ConditionCheck, Delete, Put, TransactWriteItem, Update};
use idem_core::HasConnection;
use idem_core::key_value::{KeyValue, Lent, Memory};

use crate::DynamoDb;
use crate::item::{Attributes, Item, Value};

/// The most writes of one message: a transaction has 100, and one of them completes the message.
const MOST: usize = 99;

/// The writes of one message to DynamoDB. They are collected while the handler runs, and applied in one transaction with the completion
/// of the message: all of them once, or none. If a condition fails, or DynamoDB refuses one of them, nothing is written, and the attempt has
/// failed.
///
/// A handler cannot read through it. What it reads otherwise may have changed by the time of its writes, which a condition finds out.
///
/// An item can be written once. Expressions are those of DynamoDB.
///
/// ```
/// # use idem_core::BoxError; use idem_dynamodb::{DynamoWrites, Item};
/// # struct Reserve { event_id: String, sku: String, n: i64 }
/// async fn reserve(event: Reserve, writes: &mut DynamoWrites) -> Result<(), BoxError> {
///     let stock = Item::of("stock", "sku", &event.sku);
///     writes.update(stock, "SET copies = copies - :n").only_if("copies >= :n").value(":n", event.n);
///     writes.put(Item::of("reservations", "id", event.event_id), [("sku", &event.sku)]);
///     Ok(())
/// }
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// // A test looks at what a handler has collected.
/// let mut writes = DynamoWrites::default();
/// reserve(Reserve { event_id: "e-1".to_owned(), sku: "book".to_owned(), n: 2 }, &mut writes).await?;
/// let mut expected = DynamoWrites::default();
/// expected.update(Item::of("stock", "sku", "book"), "SET copies = copies - :n").only_if("copies >= :n").value(":n", 2);
/// expected.put(Item::of("reservations", "id", "e-1"), [("sku", "book")]);
/// assert_eq!(writes, expected);
/// # Ok(()) }
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct DynamoWrites {
    pub(crate) writes: Vec<Write>,
}

/// One write, to which its condition and its values are added.
#[derive(Clone, PartialEq)]
pub struct Write {
    pub(crate) item: Item,
    kind: Kind,
    condition: Option<String>,
    names: HashMap<String, String>,
    values: Attributes,
}

#[derive(Clone, PartialEq)]
enum Kind {
    Put(Attributes),
    Update(String),
    Delete,
    Condition,
}

impl DynamoWrites {
    /// Returns whether nothing is written.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Writes the item as a whole, with these attributes beside its key (Put).
    pub fn put<N: Into<String>, V: Into<Value>>(
        &mut self,
        item: Item,
        attributes: impl IntoIterator<Item = (N, V)>,
    ) -> &mut Write {
        let attributes = attributes.into_iter().map(|(name, value)| (name.into(), value.into().0)).collect();
        self.add(item, Kind::Put(attributes), None)
    }

    /// Changes the item by an update expression, such as `ADD sold :n`, and creates it if it does not exist (Update).
    pub fn update(&mut self, item: Item, expression: impl Into<String>) -> &mut Write {
        self.add(item, Kind::Update(expression.into()), None)
    }

    /// Deletes the item, if it exists (Delete).
    pub fn delete(&mut self, item: Item) -> &mut Write {
        self.add(item, Kind::Delete, None)
    }

    /// Writes nothing to the item, and lets everything fail if this condition on it does (ConditionCheck).
    pub fn condition(&mut self, item: Item, condition: impl Into<String>) -> &mut Write {
        self.add(item, Kind::Condition, Some(condition.into()))
    }

    fn add(&mut self, item: Item, kind: Kind, condition: Option<String>) -> &mut Write {
        let write = Write { item, kind, condition, names: HashMap::new(), values: Attributes::new() };
        self.writes.push(write);
        let last = self.writes.len() - 1;
        &mut self.writes[last]
    }

    /// Returns why they can never be applied. `records`: the name of idem's own table.
    pub(crate) fn flaw(&self, records: &str) -> Option<String> {
        let number = self.writes.len();
        if number > MOST {
            return Some(format!(
                "one message may write {MOST} items, and this one writes {number}: divide it into several"
            ));
        }
        let own = format!(":table/{records}");
        (1..).zip(&self.writes).find_map(|(number, write)| {
            let before = self.writes.iter().take(number - 1).position(|other| other.item == write.item);
            if let Some(before) = before {
                let (other, name) = (before + 1, write.name());
                return Some(format!(
                    "write {number}, {name}, is to the item of write {other}: a transaction writes an item once, so join them"
                ));
            }
            let is_own = write.item.table == records || write.item.table.ends_with(&own);
            is_own.then(|| format!("write {number} is to `{records}`, the table of idem's records: write to another one"))
        })
    }

    /// Returns them for a transaction.
    pub(crate) fn build(&self) -> Result<Vec<TransactWriteItem>, BuildError> {
        self.writes.iter().map(Write::build).collect()
    }
}

impl Write {
    /// Sets the condition, such as `attribute_not_exists(id)`. If it fails, nothing of the message is written.
    pub fn only_if(&mut self, condition: impl Into<String>) -> &mut Self {
        self.condition = Some(condition.into());
        self
    }

    /// Sets a value of the expressions, such as `:n`.
    pub fn value(&mut self, name: impl Into<String>, value: impl Into<Value>) -> &mut Self {
        self.values.insert(name.into(), value.into().0);
        self
    }

    /// Sets a name in the expressions, such as `#state`, of an attribute whose own name is reserved.
    pub fn name_of(&mut self, name: impl Into<String>, attribute: impl Into<String>) -> &mut Self {
        self.names.insert(name.into(), attribute.into());
        self
    }

    /// Returns the kind and the table, for errors.
    pub(crate) fn name(&self) -> String {
        let kind = match &self.kind {
            Kind::Put(_) => "a put to",
            Kind::Update(_) => "an update of",
            Kind::Delete => "a delete from",
            Kind::Condition => "a condition on",
        };
        format!("{kind} the table `{}`", self.item.table)
    }

    fn build(&self) -> Result<TransactWriteItem, BuildError> {
        let Item { table, key } = self.item.clone();
        let (condition, names) = (self.condition.clone(), some(&self.names));
        let (values, transact) = (some(&self.values), TransactWriteItem::builder());
        Ok(match &self.kind {
            Kind::Put(attributes) => {
                let put = Put::builder()
                    .table_name(table)
                    .set_item(Some(attributes.clone().into_iter().chain(key).collect()));
                let put = put.set_condition_expression(condition).set_expression_attribute_names(names);
                transact.put(put.set_expression_attribute_values(values).build()?)
            }
            Kind::Update(expression) => {
                let update = Update::builder().table_name(table).set_key(Some(key)).update_expression(expression);
                let update = update.set_condition_expression(condition).set_expression_attribute_names(names);
                transact.update(update.set_expression_attribute_values(values).build()?)
            }
            Kind::Delete => {
                let delete = Delete::builder().table_name(table).set_key(Some(key));
                let delete = delete.set_condition_expression(condition).set_expression_attribute_names(names);
                transact.delete(delete.set_expression_attribute_values(values).build()?)
            }
            Kind::Condition => {
                let check = ConditionCheck::builder().table_name(table).set_key(Some(key));
                let check = check.set_condition_expression(condition).set_expression_attribute_names(names);
                transact.condition_check(check.set_expression_attribute_values(values).build()?)
            }
        }
        .build())
    }
}

/// DynamoDB takes no empty map.
fn some<V: Clone>(map: &HashMap<String, V>) -> Option<HashMap<String, V>> {
    (!map.is_empty()).then(|| map.clone())
}

/// Shows kinds and tables, and no key or value: both may contain personal data.
impl fmt::Debug for DynamoWrites {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.writes).finish()
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl HasConnection<DynamoWrites> for KeyValue<DynamoDb> {
    fn connection(lent: &mut Lent<DynamoWrites>) -> &mut DynamoWrites {
        lent.writes_mut()
    }
}

/// For tests of handlers, without AWS.
impl HasConnection<DynamoWrites> for KeyValue<Memory<DynamoWrites>> {
    fn connection(lent: &mut Lent<DynamoWrites>) -> &mut DynamoWrites {
        lent.writes_mut()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stock(sku: &str) -> Item {
        Item::of("stock", "sku", sku)
    }

    #[test]
    fn writes_that_no_transaction_takes_are_named_before_the_call() {
        let flaw = |writes: &DynamoWrites| writes.flaw("idem").unwrap_or_default();
        let mut writes = DynamoWrites::default();
        writes.update(stock("a"), "ADD n :n").value(":n", 1);
        writes.delete(Item::of("other", "sku", "a"));
        writes.delete(stock("b"));
        assert_eq!(flaw(&writes), "");
        writes.put(stock("a"), [("n", 1)]);
        let text = flaw(&writes);
        assert!(text.contains("write 4, a put to the table `stock`, is to the item of write 1"), "{text}");
        for table in ["idem", "arn:aws:dynamodb:eu-west-1:1:table/idem"] {
            let mut writes = DynamoWrites::default();
            writes.delete(Item::of(table, "pk", "billing/paid/e-1"));
            assert!(flaw(&writes).contains("idem's records"));
        }
        let mut writes = DynamoWrites::default();
        for n in 0..100 {
            writes.delete(Item::of("stock", "sku", n));
        }
        assert!(flaw(&writes).contains("99"));
    }

    #[test]
    fn no_value_is_shown() {
        let mut writes = DynamoWrites::default();
        writes.put(stock("s3cret"), [("n", "s3cret")]).only_if("n = :n").value(":n", "s3cret");
        assert_eq!(format!("{writes:?}"), "[a put to the table `stock`]");
        assert!(!format!("{:?}", writes.writes[0].item).contains("s3cret"));
    }
}
