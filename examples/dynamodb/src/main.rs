//! Consumes reservations from NATS JetStream, and keeps the stock in Amazon DynamoDB: no SQL.
//!
//! Create the stream and the table of the stock, and start the example. In a second shell, publish a message twice: the stock changes once.
//! With credentials, this works on AWS; on the servers of `eval "$(cargo xtask services up)"` with `AWS_ENDPOINT_URL="$MOTO_URL"`, any
//! region and any credentials.
//!
//! ```sh
//! nats --server "$NATS_URL" stream add reservations --subjects reservations --defaults
//! aws dynamodb create-table --table-name stock --billing-mode PAY_PER_REQUEST \
//!     --attribute-definitions AttributeName=sku,AttributeType=S --key-schema AttributeName=sku,KeyType=HASH
//! aws dynamodb put-item --table-name stock --item '{"sku": {"S": "book"}, "copies": {"N": "9"}}'
//! cargo run -p idem-example-dynamodb
//! nats --server "$NATS_URL" pub reservations '{"event_id": "e-1", "sku": "book", "n": 2}'
//! aws dynamodb get-item --table-name stock --key '{"sku": {"S": "book"}}'
//! ```

use std::time::Duration;

use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem::Source;
use idem::dynamodb::{DynamoWrites, Item};
use idem::key_value::KeyValue;
use idem::prelude::*;
use serde::Deserialize;

#[derive(Deserialize)]
struct Reserve {
    event_id: String,
    sku: String,
    n: i64,
}

/// The write is applied once, in one transaction with the completion of the message. If the stock does not suffice, the attempt
/// fails.
#[idempotent(key = "event_id", name = "reserve")]
async fn reserve(event: Reserve, writes: &mut DynamoWrites) -> Result<(), BoxError> {
    let stock = Item::of("stock", "sku", &event.sku);
    writes.update(stock, "SET copies = copies - :n").only_if("copies >= :n").value(":n", event.n);
    Ok(())
}

/// Loads region and credentials as each tool of AWS does, with an HTTP client on ring.
async fn load(loader: ConfigLoader) -> SdkConfig {
    let tls = tls::Provider::Rustls(CryptoMode::Ring);
    let client = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    loader.http_client(client).load().await
}

/// Creates the table of the records, if it does not exist.
async fn open(config: &SdkConfig, table: &str) -> Result<KeyValue<DynamoDb>, BoxError> {
    Ok(DynamoDb::connect(config, table).create_table().await?.retention(Duration::from_secs(30 * 24 * 3600)))
}

fn worker<S: Source>(records: KeyValue<DynamoDb>, reservations: S) -> Worker<KeyValue<DynamoDb>, S> {
    Worker::new("stock", records, reservations)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let config = load(aws_config::defaults(BehaviorVersion::latest())).await;
    let records = open(&config, "idem").await?;
    let reservations = Nats::connect(&std::env::var("NATS_URL")?).await?.stream("reservations").await?;
    println!("consuming reservations; end with ctrl-c or SIGTERM");
    worker(records, reservations)
        .handler::<reserve>()
        .observe(|observed| println!("{}", observed.outcome.as_str()))
        .run_until(idem::shutdown_signal())
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use aws_config::Region;
    use aws_credential_types::Credentials;
    use aws_sdk_dynamodb::Client;
    use aws_sdk_dynamodb::types::{
        AttributeDefinition, AttributeValue, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType,
    };
    use idem_test::{Broker, Publication};
    use tokio::sync::mpsc;

    use super::*;

    /// Creates the table of the stock, with nine books.
    async fn stock(client: &Client) -> Result<(), BoxError> {
        let sku =
            AttributeDefinition::builder().attribute_name("sku").attribute_type(ScalarAttributeType::S).build()?;
        let key = KeySchemaElement::builder().attribute_name("sku").key_type(KeyType::Hash).build()?;
        let create = client.create_table().table_name("stock").attribute_definitions(sku).key_schema(key);
        let created = create.billing_mode(BillingMode::PayPerRequest).send().await;
        assert!(created.map_or_else(|error| error.into_service_error().is_resource_in_use_exception(), |_| true));
        let book = client.put_item().table_name("stock").item("sku", AttributeValue::S("book".to_owned()));
        book.item("copies", AttributeValue::N("9".to_owned())).send().await?;
        Ok(())
    }

    /// A message that was sent twice changes the stock once, and one that asks for too much changes nothing.
    #[tokio::test]
    async fn it_runs() -> Result<(), BoxError> {
        let Some(url) = idem_conformance::server("MOTO_URL") else { return Ok(()) };
        let loader = aws_config::defaults(BehaviorVersion::latest()).endpoint_url(url).region(Region::new("eu-west-1"));
        let config = load(loader.credentials_provider(Credentials::from_keys("idem", "idem", None))).await;
        let client = Client::new(&config);
        stock(&client).await?;
        let broker = Broker::new();
        for (id, n) in [("e-1", 2), ("e-1", 2), ("e-2", 10)] {
            broker.publish("orders", Publication::new(format!(r#"{{"event_id":"{id}","sku":"book","n":{n}}}"#)));
        }
        let (outcomes, mut seen) = mpsc::unbounded_channel();
        let mut all = Vec::new();
        let three = async {
            while all.len() < 3 {
                all.extend(seen.recv().await);
            }
        };
        let table = format!("idem-example-{}", std::process::id());
        worker(open(&config, &table).await?, broker.queue("orders"))
            .handler::<reserve>()
            .retry(RetryPolicy::new().max_attempts(1))
            .observe(move |observed| _ = outcomes.send(observed.outcome.as_str()))
            .run_until(three)
            .await?;
        all.sort_unstable();
        assert_eq!(all, ["dead", "duplicate", "processed"]);
        let get = client.get_item().table_name("stock").key("sku", AttributeValue::S("book".to_owned()));
        let copies = get.send().await?.item.and_then(|mut item| item.remove("copies"));
        assert_eq!(copies, Some(AttributeValue::N("7".to_owned())));
        Ok(())
    }
}
