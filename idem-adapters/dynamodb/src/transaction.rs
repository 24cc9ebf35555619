//! The requests that change records: one item alone, or in one transaction with what a handler writes.

use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    AttributeValue, CancellationReason, ReturnConsumedCapacity, ReturnValuesOnConditionCheckFailure, TransactWriteItem,
    Update,
};
use idem_core::key_value::Id;
use idem_core::store::{Answer, StoreError};
use uuid::Uuid;

use crate::change::{Change, TOUCH};
use crate::error::{Cause, Failure, Refusal, answered};
use crate::item::Attributes;
use crate::record::{PK, Record, name};
use crate::{DynamoDb, DynamoWrites};

/// DynamoDB returns the record whose condition has failed, without a further read.
const FOUND: ReturnValuesOnConditionCheckFailure = ReturnValuesOnConditionCheckFailure::AllOld;
const TOTAL: ReturnConsumedCapacity = ReturnConsumedCapacity::Total;

/// Whether a change was made.
pub(crate) enum Changed {
    Yes,
    /// The condition has failed, for this record.
    No(Option<Record>),
}

impl DynamoDb {
    /// Changes a record, if the condition holds.
    pub(crate) async fn change(&self, id: &Id, change: Change) -> Answer<Changed> {
        let (key, table) = (AttributeValue::S(name(id)), &self.shared.table);
        let Change { statement, names, values } = change;
        let (consumed, found) = if statement.update.is_empty() {
            let delete = self.client.delete_item().table_name(table).key(PK, key);
            let delete = delete.condition_expression(statement.condition).set_expression_attribute_names(Some(names));
            let delete = delete.set_expression_attribute_values(Some(values));
            let delete = delete.return_values_on_condition_check_failure(FOUND).return_consumed_capacity(TOTAL);
            match answered(delete.send()).await {
                Ok(output) => (output.consumed_capacity, None),
                Err(Refusal { answer: Some(DeleteItemError::ConditionalCheckFailedException(failed)), .. }) => {
                    (None, Some(failed.item))
                }
                Err(refusal) => return Err(refusal.failure.fault()),
            }
        } else {
            let update = self.client.update_item().table_name(table).key(PK, key).update_expression(statement.update);
            let update = update.condition_expression(statement.condition).set_expression_attribute_names(Some(names));
            let update = update.set_expression_attribute_values(Some(values));
            let update = update.return_values_on_condition_check_failure(FOUND).return_consumed_capacity(TOTAL);
            match answered(update.send()).await {
                Ok(output) => (output.consumed_capacity, None),
                Err(Refusal { answer: Some(UpdateItemError::ConditionalCheckFailedException(failed)), .. }) => {
                    (None, Some(failed.item))
                }
                Err(refusal) => return Err(refusal.failure.fault()),
            }
        };
        match found {
            None => {
                self.count(consumed.as_slice());
                Ok(Changed::Yes)
            }
            Some(found) => self.refused(found.as_ref()),
        }
    }

    /// Changes a record of this token and applies the writes, if all conditions hold. The inner error: why the writes cannot be applied.
    pub(crate) async fn change_with(
        &self,
        id: &Id,
        token: Uuid,
        change: Change,
        writes: &DynamoWrites,
    ) -> Answer<Result<Changed, String>> {
        if writes.is_empty() {
            return self.change(id, change).await.map(Ok);
        }
        let Change { statement, names, values } = change;
        let update = Update::builder().table_name(&self.shared.table).key(PK, AttributeValue::S(name(id)));
        let update = update.update_expression(statement.update).condition_expression(statement.condition);
        let update = update.set_expression_attribute_names(Some(names)).set_expression_attribute_values(Some(values));
        let items = update.return_values_on_condition_check_failure(FOUND).build().and_then(|record| {
            // The record is first, so the other numbers are those of the writes.
            let mut items = vec![TransactWriteItem::builder().update(record).build()];
            items.extend(writes.build()?);
            Ok(items)
        });
        let items = match items {
            Ok(items) => items,
            Err(error) => return Ok(Err(error.to_string())),
        };
        let transact = self.client.transact_write_items().set_transact_items(Some(items));
        match answered(transact.return_consumed_capacity(TOTAL).send()).await {
            Ok(output) => {
                self.count(output.consumed_capacity());
                Ok(Ok(Changed::Yes))
            }
            Err(Refusal {
                answer: Some(TransactWriteItemsError::TransactionCanceledException(cancelled)),
                failure,
            }) => match judge(cancelled.cancellation_reasons(), writes, failure)? {
                Judged::Found(found) => self.refused(found).map(Ok),
                Judged::Refused(why) => Ok(Err(why)),
            },
            // The record's own table had the record just before.
            Err(Refusal { failure: Failure { cause: Cause::Content | Cause::Missing, text }, .. }) => Ok(Err(text)),
            Err(Refusal { failure, .. }) if failure.cause == Cause::Denied => {
                let touch = Change::new(TOUCH).with(":token", &token.as_bytes()[..]);
                match self.change(id, touch).await {
                    // The table of the records is permitted, so one of the handler's is not.
                    Ok(Changed::Yes) => Ok(Err(failure.text)),
                    Ok(lost) => Ok(Ok(lost)),
                    Err(_) => Err(failure.fault()),
                }
            }
            Err(refusal) => Err(refusal.failure.fault()),
        }
    }

    fn refused(&self, found: Option<&Attributes>) -> Answer<Changed> {
        self.count_refused();
        Ok(Changed::No(found.map(Record::read).transpose()?))
    }
}

/// Why a transaction was cancelled.
enum Judged<'a> {
    /// The condition of the record has failed.
    Found(Option<&'a Attributes>),
    /// A write of the handler cannot be applied.
    Refused(String),
}

/// Reads the reasons, one for each item of a transaction.
///
/// # Errors
/// The transaction is sent again, because of something that passes, or DynamoDB does not say why it was cancelled.
fn judge<'a>(reasons: &'a [CancellationReason], writes: &DynamoWrites, failure: Failure) -> Answer<Judged<'a>> {
    if let Some(record) = reasons.first().filter(|record| record.code() == Some("ConditionalCheckFailed")) {
        return Ok(Judged::Found(record.item()));
    }
    let failures = reasons.iter().enumerate().filter_map(|(number, reason)| {
        let code = reason.code().filter(|code| *code != "None")?;
        Some((number, Failure::of(code, reason.message().unwrap_or_default())))
    });
    let mut failures: Vec<(usize, Failure)> = failures.collect();
    // What passes comes first, so that no attempt counts while a part of the transaction was not even looked at.
    failures.sort_by_key(|(_, failure)| matches!(failure.cause, Cause::Content | Cause::Missing));
    match failures.into_iter().next() {
        Some((number @ 1.., Failure { cause: Cause::Content | Cause::Missing, text })) => {
            let write = writes.writes.get(number - 1).map(|write| write.name()).unwrap_or_default();
            Ok(Judged::Refused(format!("write {number}, {write}: {text}")))
        }
        Some((_, failure)) => Err(failure.fault()),
        None => Err(StoreError::Unavailable(failure.text.into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Item;

    fn judged(codes: &[&str]) -> Answer<String> {
        let reason = |code: &&str| CancellationReason::builder().code(*code).build();
        let reasons: Vec<CancellationReason> = codes.iter().map(reason).collect();
        let mut writes = DynamoWrites::default();
        writes.delete(Item::of("a", "k", "1"));
        writes.delete(Item::of("b", "k", "1"));
        judge(&reasons, &writes, Failure::of("TransactionCanceledException", "")).map(|judged| match judged {
            Judged::Found(_) => "ours".to_owned(),
            Judged::Refused(why) => why,
        })
    }

    #[test]
    fn the_first_condition_is_ours_and_the_others_are_the_handlers() {
        let refused = "ConditionalCheckFailed";
        assert_eq!(judged(&[refused, "None", refused]).unwrap(), "ours");
        let why = judged(&["None", "None", refused]).unwrap();
        assert_eq!(why, "write 2, a delete from the table `b`: ConditionalCheckFailed");
        assert!(judged(&["None", "ValidationError", "None"]).unwrap().starts_with("write 1"));
    }

    #[test]
    fn a_conflict_or_throttling_is_no_failure_of_the_handler() {
        for codes in
            [["TransactionConflict", "None", "None"], ["None", "ConditionalCheckFailed", "TransactionConflict"]]
        {
            assert!(matches!(judged(&codes), Err(StoreError::Serialization(_))), "{codes:?}");
        }
        let throttled = judged(&["None", "ThrottlingError", "None"]);
        assert!(matches!(throttled, Err(StoreError::Unavailable(_))), "{throttled:?}");
        assert!(matches!(judged(&[]), Err(StoreError::Unavailable(_))));
    }
}
