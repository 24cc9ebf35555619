//! Consumes orders from a queue of Amazon SQS and writes to SQLite.
//!
//! Create the queue, and start the example. In a second shell, send a message twice. With credentials, this works on AWS; on
//! the server of `eval "$(cargo xtask services up)"` with `AWS_ENDPOINT_URL="$SQS_URL"`, any region and any credentials; the
//! commands then need `--endpoint-url "$SQS_URL"` and the URL of the queue, which the first one prints.
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
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
    use std::time::Duration;

    use aws_config::Region;
    use aws_credential_types::Credentials;
    use aws_sdk_sqs::types::QueueAttributeName;
    use idem::DeliveryOrder;
    use tokio::sync::mpsc;

    use super::*;

    /// The configuration of a client of the test server, if there is one.
    async fn server() -> Option<SdkConfig> {
        let loader = aws_config::defaults(BehaviorVersion::latest())
            .endpoint_url(idem_conformance::server("SQS_URL")?)
            .region(Region::new("eu-west-1"))
            .credentials_provider(Credentials::from_keys("idem", "idem", None));
        Some(load(loader).await)
    }

    /// Asserts that no message is in the queue, visible or not.
    async fn is_empty(client: &aws_sdk_sqs::Client, queue: &str) -> Result<(), BoxError> {
        let left =
            client.get_queue_attributes().queue_url(queue).attribute_names(QueueAttributeName::All).send().await?;
        for (name, count) in left.attributes.unwrap_or_default() {
            assert!(!name.as_str().starts_with("ApproximateNumberOfMessages") || count == "0", "{name:?}: {count}");
        }
        Ok(())
    }

    /// A message that was sent twice has one effect, and the queue is empty.
    #[tokio::test]
    async fn it_runs() -> Result<(), BoxError> {
        let Some(config) = server().await else { return Ok(()) };
        let (client, name) = (aws_sdk_sqs::Client::new(&config), format!("orders-{}", std::process::id()));
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
        is_empty(&client, &queue).await
    }

    static FAILED: AtomicBool = AtomicBool::new(false);

    /// Fails once, at the first order.
    #[idempotent(key = "event_id", name = "first_fails")]
    async fn first_fails(event: OrderPaid, tx: &mut SqliteConnection) -> Result<(), BoxError> {
        if event.order_id == 1 && !FAILED.swap(true, SeqCst) {
            return Err("it fails once".into());
        }
        sqlx::query("INSERT INTO payments (order_id) VALUES (?)").bind(event.order_id).execute(tx).await?;
        Ok(())
    }

    /// A group of a FIFO queue keeps its order while its first message fails and is tried again.
    #[tokio::test]
    async fn a_group_keeps_its_order() -> Result<(), BoxError> {
        let Some(config) = server().await else { return Ok(()) };
        let (client, name) = (aws_sdk_sqs::Client::new(&config), format!("orders-{}.fifo", std::process::id()));
        let create = client.create_queue().queue_name(&name).attributes(QueueAttributeName::FifoQueue, "true");
        let queue = create.send().await?.queue_url.unwrap_or_default();
        for number in 1..=15 {
            let body = format!(r#"{{"event_id": "e-{number}", "order_id": {number}}}"#);
            let send = client.send_message().queue_url(&queue).message_body(body).message_group_id("customer-7");
            send.message_deduplication_id(number.to_string()).send().await?;
        }
        let directory = tempfile::tempdir()?;
        let (store, mut db) = open(&format!("sqlite://{}/orders.db", directory.path().display())).await?;
        let orders = Sqs::new(&config).queue(name).await?.visibility(Duration::from_secs(5));
        let (outcomes, mut seen) = mpsc::unbounded_channel();
        let all = async {
            let mut processed = 0;
            while processed < 15 {
                processed += usize::from(seen.recv().await == Some("processed"));
            }
        };
        worker(store, orders)
            .handler::<first_fails>()
            .order(DeliveryOrder::Key)
            .observe(move |observed| {
                let _ = outcomes.send(observed.outcome.as_str());
            })
            .run_until(all)
            .await?;
        assert!(FAILED.load(SeqCst));
        let handled: Vec<i64> =
            sqlx::query_scalar("SELECT order_id FROM payments ORDER BY rowid").fetch_all(&mut db).await?;
        assert_eq!(handled, (1..=15).collect::<Vec<_>>());
        is_empty(&client, &queue).await
    }
}
