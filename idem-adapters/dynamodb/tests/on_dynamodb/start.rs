//! The start: the configuration, the table, the options of a worker.

use std::time::Duration;

use aws_sdk_dynamodb::types::TimeToLiveStatus;
use idem_conformance::{soon, texts};
use idem_core::key_value::{BestEffort, KeyValueStore, LetterFilter};
use idem_core::{BoxError, Delivery, Error, Handler, Key, KeyError, Reason, Worker};
use idem_dynamodb::{DynamoDb, SdkConfig};
use idem_test::{Broker, Publication};

use crate::common::{self, config, create, unique};

#[tokio::test]
async fn a_table_is_created_once_with_its_time_to_live_and_its_index() {
    let Some(world) = common::world().await else { return };
    DynamoDb::connect(&config(&world.url), &world.table).create_table().await.unwrap();
    DynamoDb::connect(&config(&world.url), &world.table).await.unwrap();
    let described = world.client.describe_time_to_live().table_name(&world.table).send().await.unwrap();
    let ttl = described.time_to_live_description.unwrap();
    assert_eq!(
        (ttl.time_to_live_status, ttl.attribute_name),
        (Some(TimeToLiveStatus::Enabled), Some("ttl".to_owned()))
    );
    let table = world.client.describe_table().table_name(&world.table).send().await.unwrap().table.unwrap();
    assert_eq!(table.global_secondary_indexes()[0].index_name(), Some("dead"));
}

#[tokio::test]
async fn a_missing_table_is_named_with_the_fix() {
    let Some(world) = common::world().await else { return };
    let missing = unique("missing");
    let error = DynamoDb::connect(&config(&world.url), &missing).await.unwrap_err();
    assert!(
        matches!(&error, Error::Config(text) if text.contains(&missing) && text.contains(".create_table()")),
        "{error}"
    );
    world.client.delete_table().table_name(&world.table).send().await.unwrap();
    assert!(world.dynamodb.store().check(Duration::from_secs(60)).await.is_err(), "somebody has deleted it");
}

#[tokio::test]
async fn a_table_with_another_key_is_refused() {
    let Some(world) = common::world().await else { return };
    let other = unique("other");
    create(&world.client, &other, "id").await;
    let text = texts(&DynamoDb::connect(&config(&world.url), &other).await.unwrap_err());
    assert!(text.contains("`pk`") && text.contains(&other), "{text}");
}

#[tokio::test]
async fn an_incomplete_configuration_is_an_error_that_names_the_part() {
    let error = DynamoDb::connect(&SdkConfig::builder().build(), "idem").await.unwrap_err();
    assert!(matches!(&error, Error::Config(text) if text.contains("AWS_REGION")), "{error}");
    let region = aws_sdk_dynamodb::config::Region::new("eu-west-1");
    let error = DynamoDb::connect(&SdkConfig::builder().region(region).build(), "idem").await.unwrap_err();
    assert!(matches!(&error, Error::Config(text) if text.contains("behavior")), "{error}");
}

struct Nothing;

impl Handler for Nothing {
    const NAME: &'static str = "nothing";
    type Message = String;
    type Input = String;
    type Params = ();
    type Connection = BestEffort;

    fn key(id: &String, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(id)
    }

    async fn handle(_: String, (): (), _: &mut BestEffort) -> Result<(), BoxError> {
        Ok(())
    }
}

/// Its dead letter does not fit into one item.
#[tokio::test]
async fn a_message_over_the_limit_of_a_worker_ends_as_a_dead_letter() {
    let Some(world) = common::world().await else { return };
    let (broker, records) = (Broker::new(), world.dynamodb.clone());
    broker.publish("orders", Publication::new("x".repeat(1_100_000)));
    let worker = Worker::new("billing", world.dynamodb, broker.queue("orders")).handler::<Nothing>();
    let worker = tokio::spawn(worker.run_until(std::future::pending()));
    soon(broker.idle()).await;
    let letters = records.dead(&LetterFilter::new()).await.unwrap();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((letter.reason, letter.delivery.payload().len()), (Reason::TooLarge, 1_100_000));
    worker.abort();
}
