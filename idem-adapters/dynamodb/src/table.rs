//! The table of the records: made, and checked.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use aws_sdk_dynamodb::error::BuildError;
use aws_sdk_dynamodb::operation::create_table::CreateTableError;
use aws_sdk_dynamodb::operation::create_table::builders::CreateTableFluentBuilder;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, GlobalSecondaryIndex, KeySchemaElement, KeyType, Projection, ProjectionType,
    ScalarAttributeType, TableDescription, TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use idem_core::Error;
use tokio::time::sleep;

use crate::DynamoDb;
use crate::error::{Failure, answered};
use crate::record::PK;

/// The attribute that only dead letters have, and the index over it.
pub(crate) const DEAD: &str = "dead";

/// The attribute with the second in which DynamoDB may delete a record.
const TTL: &str = "ttl";

/// How often the state of a table is read while it is created, and for how many times.
const EACH: Duration = Duration::from_secs(1);
const TIMES: usize = 120;

/// Creates the table if it does not exist, waits until it can be used, and sets its time to live.
pub(crate) async fn create(dynamodb: &DynamoDb) -> Result<(), Error> {
    let name = &dynamodb.shared.table;
    let failed = |action: &'static str| move |failure: Failure| failure.error(action, name);
    let request = with_schema(dynamodb.client.create_table().table_name(name)).map_err(unbuilt)?;
    match answered(request.send()).await {
        Ok(_) => {}
        Err(refusal) if matches!(refusal.answer, Some(CreateTableError::ResourceInUseException(_))) => {}
        Err(refusal) => return Err(failed("dynamodb:CreateTable")(refusal.failure)),
    }
    for _ in 0..TIMES {
        if describe(dynamodb).await?.table_status() == Some(&TableStatus::Active) {
            break;
        }
        sleep(EACH).await;
    }
    if has_ttl(dynamodb).await.map_err(failed("dynamodb:DescribeTimeToLive"))? {
        return Ok(());
    }
    let ttl = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true).build().map_err(unbuilt)?;
    let set = dynamodb.client.update_time_to_live().table_name(name).time_to_live_specification(ttl);
    match answered(set.send()).await {
        Ok(_) => Ok(()),
        // Another worker that starts now has set it.
        Err(_) if has_ttl(dynamodb).await.is_ok_and(|is_set| is_set) => Ok(()),
        Err(refusal) => Err(failed("dynamodb:UpdateTimeToLive")(refusal.failure)),
    }
}

fn with_schema(request: CreateTableFluentBuilder) -> Result<CreateTableFluentBuilder, BuildError> {
    let text =
        |name| AttributeDefinition::builder().attribute_name(name).attribute_type(ScalarAttributeType::S).build();
    let key = |name: &str| KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash).build();
    // Of a letter only the name: a burst of dead letters must not be throttled by their size in the index.
    let names = Projection::builder().projection_type(ProjectionType::KeysOnly).build();
    let dead = GlobalSecondaryIndex::builder().index_name(DEAD).key_schema(key(DEAD)?).projection(names).build()?;
    Ok(request
        .attribute_definitions(text(PK)?)
        .attribute_definitions(text(DEAD)?)
        .key_schema(key(PK)?)
        .global_secondary_indexes(dead)
        .billing_mode(BillingMode::PayPerRequest))
}

/// A request without a part that it needs. This crate gives all of them.
fn unbuilt(error: BuildError) -> Error {
    Error::database("a request to DynamoDB lacks a part", error)
}

/// Checks that the table can have records.
///
/// # Errors
/// [`Error::Config`] if it cannot; otherwise DynamoDB does not answer.
pub(crate) async fn check(dynamodb: &DynamoDb) -> Result<(), Error> {
    let (name, table) = (&dynamodb.shared.table, describe(dynamodb).await?);
    if let Some(flaw) = flaw(&table) {
        return Err(Error::Config(format!(
            "the DynamoDB table `{name}` {flaw}. Use a table of its own, which \
             `DynamoDb::connect(&config, \"..\").create_table()` creates"
        )));
    }
    match table.table_status() {
        None | Some(TableStatus::Active | TableStatus::Updating) => {}
        Some(status) => {
            return Err(Error::database(
                format!("the DynamoDB table `{name}` cannot be used"),
                format!("it is {}", status.as_str()),
            ));
        }
    }
    if dynamodb.shared.warned.swap(true, Relaxed) {
        return Ok(());
    }
    if !table.replicas().is_empty() {
        tracing::warn!(
            table = name,
            "the table has replicas: workers of two regions may run one message at once, and both complete it; run workers of a \
             consumer in one region"
        );
    }
    if has_ttl(dynamodb).await.is_ok_and(|is_set| !is_set) {
        tracing::warn!(
            table = name,
            "the table has no time to live, so the records of processed messages stay and are paid for: set it on the attribute `ttl`"
        );
    }
    Ok(())
}

async fn describe(dynamodb: &DynamoDb) -> Result<TableDescription, Error> {
    let name = &dynamodb.shared.table;
    let described = answered(dynamodb.client.describe_table().table_name(name).send()).await;
    let described = described.map_err(|refusal| refusal.failure.error("dynamodb:DescribeTable", name))?;
    described.table.ok_or_else(|| Error::database(format!("DynamoDB does not describe the table `{name}`"), "no text"))
}

/// Returns why a table cannot have records.
fn flaw(table: &TableDescription) -> Option<String> {
    let has = |schema: &[KeySchemaElement], key: &str| matches!(schema, [one] if one.attribute_name() == key);
    if !has(table.key_schema(), PK) {
        return Some(format!("has another key than the partition key `{PK}`"));
    }
    let is_text = |name: &str| {
        let mut attributes = table.attribute_definitions().iter();
        attributes.any(|one| one.attribute_name() == name && *one.attribute_type() == ScalarAttributeType::S)
    };
    if !is_text(PK) {
        return Some(format!("has a key `{PK}` that is not a string"));
    }
    let mut indexes = table.global_secondary_indexes().iter();
    let is_listed = indexes.any(|index| index.index_name() == Some(DEAD) && has(index.key_schema(), DEAD));
    (!is_listed || !is_text(DEAD))
        .then(|| format!("has no index `{DEAD}` over the string `{DEAD}`, which lists the dead letters"))
}

/// Returns whether DynamoDB deletes records that have ended.
async fn has_ttl(dynamodb: &DynamoDb) -> Result<bool, Failure> {
    let ask = dynamodb.client.describe_time_to_live().table_name(&dynamodb.shared.table);
    let described = answered(ask.send()).await.map_err(|refusal| refusal.failure)?;
    Ok(described.time_to_live_description.is_some_and(|ttl| {
        let is_on = matches!(ttl.time_to_live_status(), Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
        is_on && ttl.attribute_name() == Some(TTL)
    }))
}

#[cfg(test)]
mod tests {
    use aws_sdk_dynamodb::types::GlobalSecondaryIndexDescription;

    use super::*;

    fn key(name: &str) -> KeySchemaElement {
        KeySchemaElement::builder().attribute_name(name).key_type(KeyType::Hash).build().unwrap()
    }

    fn table(keys: &[&str], kind: ScalarAttributeType, index: &str) -> TableDescription {
        let attribute =
            |name, kind| AttributeDefinition::builder().attribute_name(name).attribute_type(kind).build().unwrap();
        let index = GlobalSecondaryIndexDescription::builder().index_name(index).key_schema(key(DEAD)).build();
        TableDescription::builder()
            .set_key_schema(Some(keys.iter().map(|name| key(name)).collect()))
            .attribute_definitions(attribute(PK, kind))
            .attribute_definitions(attribute(DEAD, ScalarAttributeType::S))
            .global_secondary_indexes(index)
            .build()
    }

    #[test]
    fn a_table_with_another_key_or_without_the_index_is_refused() {
        let flawed = |keys: &[&str], kind, index: &str| flaw(&table(keys, kind, index));
        assert_eq!(flawed(&[PK], ScalarAttributeType::S, DEAD), None);
        assert!(flawed(&["id"], ScalarAttributeType::S, DEAD).is_some_and(|why| why.contains("partition key")));
        assert!(flawed(&[PK, "sk"], ScalarAttributeType::S, DEAD).is_some_and(|why| why.contains("partition key")));
        assert!(flawed(&[PK], ScalarAttributeType::B, DEAD).is_some_and(|why| why.contains("not a string")));
        assert!(flawed(&[PK], ScalarAttributeType::S, "other").is_some_and(|why| why.contains("index")));
    }
}
