//! Dead letters. One that no item takes is divided: its first part is in the record, and the others are items beside it.

use aws_sdk_dynamodb::types::{AttributeValue, ReturnConsumedCapacity};
use idem_core::Fingerprint;
use idem_core::key_value::{Id, Letter};
use idem_core::store::Answer;

use crate::DynamoDb;
use crate::error::answered;
use crate::item::{Attributes, Value};
use crate::record::{PK, Record, bytes, name};
use crate::table::DEAD;

/// The most bytes of a part. An item has 400 KB, and moto counts bytes in base64, with those that are replaced.
const PART: usize = 128 * 1024;

/// The attribute of an item that is a part.
const BYTES: &str = "part";

/// Returns the partition key of a part. No record has it, since the `%` of a record's name is followed by two hexadecimal digits. It has
/// the fingerprint of the letter's bytes (`sum`), so that a repetition overwrites the part, and no other letter does.
fn part(name: &str, sum: &[u8], number: usize) -> AttributeValue {
    let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
    AttributeValue::S(format!("{name}%part/{sum}/{number}"))
}

impl DynamoDb {
    /// Writes all parts of a letter but the first, before the record refers to them. Returns that one, and the number of the others.
    pub(crate) async fn put_parts<'l>(&self, id: &Id, letter: &'l [u8], sum: Fingerprint) -> Answer<(&'l [u8], usize)> {
        let (name, mut parts) = (name(id), letter.chunks(PART));
        let first = parts.next().unwrap_or_default();
        let others = parts.len();
        for (number, bytes) in (1..).zip(parts) {
            let put =
                self.client.put_item().table_name(&self.shared.table).item(PK, part(&name, sum.as_bytes(), number));
            let put = put.item(BYTES, Value::from(bytes).0).return_consumed_capacity(ReturnConsumedCapacity::Total);
            let written = answered(put.send()).await.map_err(|refusal| refusal.failure.fault())?;
            self.count(written.consumed_capacity.as_slice());
        }
        Ok((first, others))
    }

    /// Deletes the parts of a letter to which no record refers any more. Those that stay after a failure are never read.
    pub(crate) async fn delete_parts(&self, id: &Id, letter: &Record) {
        let name = name(id);
        for number in 1..=letter.parts {
            let delete =
                self.client.delete_item().table_name(&self.shared.table).key(PK, part(&name, &letter.sum, number));
            match answered(delete.return_consumed_capacity(ReturnConsumedCapacity::Total).send()).await {
                Ok(deleted) => self.count(deleted.consumed_capacity.as_slice()),
                Err(refusal) => tracing::warn!(
                    table = self.shared.table,
                    error = refusal.failure.text,
                    "a part of a dead letter that has ended was not deleted, and stays"
                ),
            }
        }
    }

    /// Returns a page of the names of dead letters, and where the next one begins.
    pub(crate) async fn listed(
        &self,
        consumer: Option<&str>,
        from: Option<Attributes>,
    ) -> Answer<(Vec<Attributes>, Option<Attributes>)> {
        let table = &self.shared.table;
        let (items, next) = match consumer {
            Some(consumer) => {
                let query = self.client.query().table_name(table).index_name(DEAD).set_exclusive_start_key(from);
                let query =
                    query.key_condition_expression("#dead = :consumer").expression_attribute_names("#dead", DEAD);
                let query = query.expression_attribute_values(":consumer", AttributeValue::S(consumer.to_owned()));
                let page = answered(query.send()).await.map_err(|refusal| refusal.failure.fault())?;
                (page.items, page.last_evaluated_key)
            }
            None => {
                let scan = self.client.scan().table_name(table).index_name(DEAD).set_exclusive_start_key(from);
                let page = answered(scan.send()).await.map_err(|refusal| refusal.failure.fault())?;
                (page.items, page.last_evaluated_key)
            }
        };
        Ok((items.unwrap_or_default(), next.filter(|next| !next.is_empty())))
    }

    /// Reads the letter that an entry of the index names. `None`: it was resolved meanwhile, or somebody has damaged it.
    pub(crate) async fn letter(&self, mut entry: Attributes) -> Answer<Option<Letter>> {
        let Some(AttributeValue::S(name)) = entry.remove(PK) else { return Ok(None) };
        let found = self.item(AttributeValue::S(name.clone())).await?;
        let Some(mut record) = found.and_then(|item| Record::read(&item).ok()) else { return Ok(None) };
        for number in 1..=record.parts {
            let item = self.item(part(&name, &record.sum, number)).await?.unwrap_or_default();
            record.letter.extend(bytes(&item, BYTES));
        }
        Ok(Letter::decode(&record.letter))
    }

    async fn item(&self, name: AttributeValue) -> Answer<Option<Attributes>> {
        let get = self.client.get_item().table_name(&self.shared.table).key(PK, name).consistent_read(true);
        Ok(answered(get.send()).await.map_err(|refusal| refusal.failure.fault())?.item)
    }
}
