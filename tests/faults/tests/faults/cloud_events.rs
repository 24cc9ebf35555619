//! CloudEvents from each broker to PostgreSQL: an event that comes in both encodings is one message.

use idem::extract::CloudEvent;
use idem::{BoxError, Outcome, State, Worker, idempotent};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};
use idem_faults::{Journal, Real, Site, Stage, World};
use serde::Deserialize;
use sqlx::PgConnection;

#[derive(Deserialize)]
struct Paid {
    order: String,
}

#[idempotent(key = cloud_event_id, event = "order.paid")]
async fn paid(paid: Paid, event: CloudEvent, stage: State<Stage>, tx: &mut PgConnection) -> Result<(), BoxError> {
    let id = format!("{} of {} {}", paid.order, event.source(), event.id());
    Ok(stage.0.effect(&id, 1, tx).await?)
}

/// The attributes are headers, and the payload is the data.
const BINARY: (&[(&str, &str)], &str) = (
    &[
        ("content-type", "application/json"),
        ("ce-specversion", "1.0"),
        ("ce-id", "7"),
        ("ce-source", "/shop"),
        ("ce-type", "order.paid"),
    ],
    r#"{"order": "a"}"#,
);

/// The payload has the attributes and the data.
const STRUCTURED: (&[(&str, &str)], &str) = (
    &[("content-type", "application/cloudevents+json")],
    r#"{"specversion": "1.0", "id": "7", "source": "/shop", "type": "order.paid", "data": {"order": "a"}}"#,
);

#[tokio::test(flavor = "multi_thread")]
async fn an_event_from_rabbitmq_is_processed_once_in_whichever_encoding_it_comes() {
    is_processed_once::<RabbitMq>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_from_nats_is_processed_once_in_whichever_encoding_it_comes() {
    is_processed_once::<Nats>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_from_kafka_is_processed_once_in_whichever_encoding_it_comes() {
    is_processed_once::<Kafka>().await;
}

async fn is_processed_once<B: Broker>() {
    let (Some(world), Some(site)) = (World::new().await, Real::<B>::new().await) else { return };
    let store = world.store().await;
    for (headers, payload) in [BINARY, STRUCTURED, BINARY, STRUCTURED] {
        site.publish_with(headers, payload.as_bytes()).await;
    }
    let journal = world.journal.clone();
    let worker = Worker::new("faults", store, site.source().await)
        .state(world.stage.clone())
        .handler::<paid>()
        .cloud_events()
        .observe(move |delivery, outcome| journal.note(delivery, outcome));
    let running = tokio::spawn(worker.run_until(std::future::pending()));
    let ended = |journal: &Journal| {
        (
            journal.count(|outcome| *outcome == Outcome::Processed),
            journal.count(|outcome| *outcome == Outcome::Duplicate),
        )
    };
    world.journal.until("one is processed, and three are duplicates", |journal| ended(journal) == (1, 3)).await;
    assert_eq!(world.all_effects().await, [("a of /shop 7".to_owned(), 1)]);
    running.abort();
    let _ = running.await;
    site.end().await;
    world.end().await;
}
