//! What the tests share.

use std::sync::Arc;

use aws_credential_types::Credentials;
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::retry::RetryConfig;
use aws_sdk_dynamodb::config::{BehaviorVersion, Region, SharedCredentialsProvider};
use aws_sdk_dynamodb::error::DisplayErrorContext;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
};
use aws_smithy_async::rt::sleep::{SharedAsyncSleep, TokioSleep};
use idem_conformance::server;
use idem_core::Key;
use idem_core::key_value::{Id, KeyValue};
use idem_dynamodb::{DynamoDb, Item, SdkConfig};

/// A table of the handlers.
pub(crate) const COUNTERS: &str = "idem-test-counters";

/// The configuration of a client of the server at this address, as an application loads it. It repeats no request.
pub(crate) fn config(endpoint: &str) -> SdkConfig {
    let credentials = Credentials::from_keys("idem", "s3ntinel", None);
    SdkConfig::builder()
        .behavior_version(BehaviorVersion::latest())
        .region(Region::new("eu-west-1"))
        .endpoint_url(endpoint)
        .credentials_provider(SharedCredentialsProvider::new(credentials))
        .http_client(aws_smithy_http_client::Builder::new().build_http())
        .retry_config(RetryConfig::disabled())
        .sleep_impl(SharedAsyncSleep::new(TokioSleep::new()))
        .build()
}

/// A table of its own for the records, that of the handlers, and a client.
pub(crate) struct World {
    pub(crate) url: String,
    pub(crate) table: String,
    pub(crate) dynamodb: KeyValue<DynamoDb>,
    pub(crate) client: Client,
}

pub(crate) async fn world() -> Option<World> {
    let url = server("MOTO_URL")?;
    let (config, table) = (config(&url), unique("records"));
    let client = Client::new(&config);
    create(&client, COUNTERS, "name").await;
    let dynamodb = DynamoDb::connect(&config, &table).create_table().await.unwrap();
    Some(World { url, table, dynamodb, client })
}

/// Creates a table with this key, if it does not exist.
pub(crate) async fn create(client: &Client, table: &str, key: &str) {
    let attribute = AttributeDefinition::builder().attribute_name(key).attribute_type(ScalarAttributeType::S).build();
    let key = KeySchemaElement::builder().attribute_name(key).key_type(KeyType::Hash).build();
    let create = client.create_table().table_name(table).billing_mode(BillingMode::PayPerRequest);
    let created = create.attribute_definitions(attribute.unwrap()).key_schema(key.unwrap()).send().await;
    if let Err(error) = created.map_err(aws_sdk_dynamodb::error::SdkError::into_service_error) {
        assert!(error.is_resource_in_use_exception(), "{}", DisplayErrorContext(error));
    }
}

impl World {
    /// Reads an item of the handlers.
    pub(crate) async fn read(&self, name: &str) -> Option<std::collections::HashMap<String, AttributeValue>> {
        let get = self.client.get_item().table_name(COUNTERS).key("name", AttributeValue::S(name.to_owned()));
        get.send().await.unwrap().item
    }

    /// Reads the record of a message.
    pub(crate) async fn record(&self, id: &Id) -> std::collections::HashMap<String, AttributeValue> {
        let get = self.client.get_item().table_name(&self.table).key("pk", record(id));
        get.send().await.unwrap().item.unwrap()
    }
}

/// An item of the handlers.
pub(crate) fn counter(name: &str) -> Item {
    Item::of(COUNTERS, "name", name)
}

pub(crate) fn unique(what: &str) -> String {
    format!("{what}-{}", uuid::Uuid::new_v4().simple())
}

/// The id of a message of a consumer that no other test has.
pub(crate) fn id() -> Id {
    Id { consumer: Arc::from(unique("c")), handler: "reserve".into(), key: Key::of("e-1").unwrap(), apart: None }
}

/// The key of its record. Nothing in it is escaped.
pub(crate) fn record(id: &Id) -> AttributeValue {
    AttributeValue::S(String::from_utf8(id.name()).unwrap())
}
