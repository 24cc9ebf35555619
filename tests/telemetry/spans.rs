//! Who gets the span of a message. This is a program with a single test: the logger of the crate `log` and the most verbose level
//! of all subscribers belong to the process, and the logger gets nothing once there has been a subscriber.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem::prelude::*;
use idem_test::Broker;
use serde::{Deserialize, Serialize};
use sqlx::SqliteConnection;
use tokio::time::timeout;
use tracing::Subscriber;
use tracing::span::{Attributes, Id};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::layer::{Context, SubscriberExt};

/// The target of the span.
const TARGET: &str = "idem_core::telemetry";

#[derive(Serialize, Deserialize)]
struct Order {
    id: u32,
}

#[idempotent(key = "id", name = "order")]
async fn order(_: Order, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Ok(())
}

/// Runs a worker until it has processed a message.
async fn process_one() {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::connect(&format!("sqlite://{}/idem.db", directory.path().display())).await.unwrap();
    let broker = Broker::new();
    broker.publish_json("orders", &Order { id: 1 }).unwrap();
    let idle = broker.clone();
    let worker = Worker::new("billing", store, broker.queue("orders")).handler::<order>();
    timeout(Duration::from_secs(60), worker.run_until(async move { idle.idle().await })).await.unwrap().unwrap();
}

/// The lines about the span that the logger got.
static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        if record.target() == TARGET {
            LINES.lock().unwrap().push(record.args().to_string());
        }
    }

    fn flush(&self) {}
}

/// The names of the spans that a subscriber got.
#[derive(Clone, Default)]
struct Names(Arc<Mutex<Vec<&'static str>>>);

impl<S: Subscriber> Layer<S> for Names {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        if attributes.metadata().target() == TARGET {
            self.0.lock().unwrap().push(attributes.metadata().name());
        }
    }
}

#[tokio::test]
async fn a_logger_and_a_subscriber_of_the_level_info_get_the_span_of_a_message() {
    log::set_logger(&Logger).unwrap();
    log::set_max_level(log::LevelFilter::Info);
    process_one().await;
    let lines = std::mem::take(&mut *LINES.lock().unwrap());
    let got = lines.iter().any(|line| line.starts_with("process;"));
    assert!(got, "sqlx turns on the feature `log` of tracing, by which a logger gets spans: {lines:?}");

    log::set_max_level(log::LevelFilter::Off);
    let names = Names::default();
    let subscriber = tracing_subscriber::registry().with(LevelFilter::INFO).with(names.clone());
    let _names = tracing::subscriber::set_default(subscriber);
    assert_eq!(LevelFilter::current(), LevelFilter::INFO, "no other subscriber asks for more");
    process_one().await;
    assert_eq!(*names.0.lock().unwrap(), ["process"]);
}
