//! Consumes orders from a queue of Amazon SQS and writes to SQLite.
//!
//! Create the queue, and start the example. In a second shell, send a message twice. With credentials, this works on AWS; on
//! the server of `eval "$(cargo xtask services up)"` with `AWS_ENDPOINT_URL="$SQS_URL"`, any region and any credentials.
//!
//! ```sh
//! aws sqs create-queue --queue-name orders
//! cargo run -p idem-example-sqs
//! aws sqs send-message --queue-url orders --message-body '{"event_id": "e-1", "order_id": 7}'
//! ```

use aws_config::{BehaviorVersion, ConfigLoader, SdkConfig};
use aws_smithy_http_client::tls::{self, rustls_provider::CryptoMode};
use idem::prelude::*;
use idem::sqs::Queue;
use serde::Deserialize;
use sqlx::{Connection, SqliteConnection};

#[derive(Deserialize)]
struct OrderPaid {
    event_id: String,
    order_id: i64,
}

#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid(event: OrderPaid, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO payments (order_id) VALUES (?)").bind(event.order_id).execute(tx).await?;
    Ok(())
}

/// Loads region and credentials as each tool of AWS does, with an HTTP client on ring.
async fn load(loader: ConfigLoader) -> SdkConfig {
    let tls = tls::Provider::Rustls(CryptoMode::Ring);
    let client = aws_smithy_http_client::Builder::new().tls_provider(tls).build_https();
    loader.http_client(client).load().await
}

/// Opens the database. The table has no unique constraint and needs none.
async fn open(url: &str) -> Result<(Sqlite, SqliteConnection), BoxError> {
    let (store, mut db) = (Sqlite::connect(url).await?, SqliteConnection::connect(url).await?);
    sqlx::raw_sql("CREATE TABLE IF NOT EXISTS payments (order_id INTEGER NOT NULL)").execute(&mut db).await?;
    Ok((store, db))
}

fn worker(store: Sqlite, orders: Queue) -> Worker<Sqlite, Queue> {
    Worker::new("billing", store, orders)
}

#[tokio::main]
async fn main() -> Result<(), BoxError> {
    let config = load(aws_config::defaults(BehaviorVersion::latest())).await;
    let (store, _db) = open("sqlite://orders.db").await?;
    // The queue must exist.
    let orders = Sqs::new(&config).queue("orders").await?;
    println!("consuming orders; end with ctrl-c or SIGTERM");
    worker(store, orders)
        .handler::<order_paid>()
        .observe(|observed| println!("{}", observed.outcome.as_str()))
        .run_until(idem::shutdown_signal())
        .await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use aws_config::Region;
    use aws_credential_types::Credentials;
    use tokio::sync::mpsc;

    use super::*;

    /// A message that was sent twice has one effect, and the queue is empty.
    #[tokio::test]
    async fn it_runs() -> Result<(), BoxError> {
        let Some(server) = idem_conformance::server("SQS_URL") else { return Ok(()) };
        let loader = aws_config::defaults(BehaviorVersion::latest())
            .endpoint_url(server)
            .region(Region::new("eu-west-1"))
            .credentials_provider(Credentials::from_keys("idem", "idem", None));
        let (config, name) = (load(loader).await, format!("orders-{}", std::process::id()));
        let client = aws_sdk_sqs::Client::new(&config);
        let queue = client.create_queue().queue_name(&name).send().await?.queue_url.unwrap_or_default();
        for _ in 0..2 {
            let body = r#"{"event_id": "e-1", "order_id": 7}"#;
            client.send_message().queue_url(&queue).message_body(body).send().await?;
        }
        let directory = tempfile::tempdir()?;
        let (store, mut db) = open(&format!("sqlite://{}/orders.db", directory.path().display())).await?;
        let orders = Sqs::new(&config).queue(name).await?;
        let (outcomes, mut seen) = mpsc::unbounded_channel();
        let mut all = Vec::new();
        let both = async {
            while all.len() < 2 {
                all.extend(seen.recv().await);
            }
        };
        worker(store, orders)
            .handler::<order_paid>()
            .observe(move |observed| {
                let _ = outcomes.send(observed.outcome.as_str());
            })
            .run_until(both)
            .await?;
        all.sort_unstable();
        assert_eq!(all, ["duplicate", "processed"]);
        let payments: i64 = sqlx::query_scalar("SELECT count(*) FROM payments").fetch_one(&mut db).await?;
        assert_eq!(payments, 1);
        let left = client.get_queue_attributes().queue_url(&queue);
        let left = left.attribute_names(aws_sdk_sqs::types::QueueAttributeName::All).send().await?;
        let left = left.attributes.unwrap_or_default();
        for (name, count) in left.iter().filter(|(name, _)| name.as_str().starts_with("ApproximateNumberOfMessages")) {
            assert_eq!(count, "0", "{name:?}");
        }
        Ok(())
    }
}
