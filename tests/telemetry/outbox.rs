//! The metrics of an outbox: those of its relay, and those of a worker whose messages nobody publishes; and the traces of
//! its messages.

use std::collections::BTreeMap;
use std::time::Duration;

use idem::prelude::*;
use idem_test::{Broker, MemorySink, Reply};
use metrics_util::debugging::DebuggingRecorder;
use sqlx::{Connection, SqliteConnection};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::{Order, measured, url};

#[idempotent(key = "id", name = "stages")]
async fn stages(order: Order, _tx: &mut SqliteConnection, outbox: Outbox) -> Result<(), BoxError> {
    outbox.publish("orders", &order)?;
    Ok(())
}

/// A database in which these messages were staged, so many milliseconds ago.
async fn staged<const N: usize>(texts: [&'static str; N], ago: i64) -> (TempDir, Sqlite) {
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::connect(&url(&directory)).await.unwrap();
    let mut db = SqliteConnection::connect(&url(&directory)).await.unwrap();
    let mut tx = db.begin().await.unwrap();
    store.outbox("shop").stage(&mut tx, texts.map(|text| Outgoing::new("orders", text))).await.unwrap();
    tx.commit().await.unwrap();
    let aged = "UPDATE idem_outbox_messages SET created_at = created_at - ?";
    sqlx::query(aged).bind(ago).execute(&mut db).await.unwrap();
    (directory, store)
}

#[tokio::test]
async fn a_relay_counts_what_is_published_rejected_given_up_and_dead() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let (_directory, store) = staged(["one", "two", "bad"], 0).await;
    let outbox = store.outbox("shop");
    let sink = MemorySink::new();
    sink.on_publish(|message| match &message.payload()[..] {
        b"bad" => Reply::Refuse("no queue is bound".to_owned()),
        _ => Reply::Confirm,
    });
    let retry = RetryPolicy::new().max_attempts(2).min_delay(Duration::from_millis(10)).factor(1.0);
    let done = async {
        while outbox.stats(10).await.unwrap().waiting > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let relay = Relay::new("shop", store.clone(), sink.clone()).retry(retry).run_until(done);
    timeout(Duration::from_secs(30), relay).await.expect("messages wait").unwrap();
    let all = measured(&snapshots);
    let of = |name: &str| all.get(&format!("idem_outbox_{name} outbox=shop")).copied();
    let counted = ["published_total", "rejected_total", "given_up_total", "lag_seconds", "active"].map(of);
    assert_eq!(counted, [2.0, 1.0, 1.0, 2.0, 1.0].map(Some));
    // A relay counts at its start.
    let counted = async {
        while measured(&snapshots).get("idem_outbox_dead outbox=shop").copied() != Some(1.0) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let relay = Relay::new("shop", store, sink).run_until(counted);
    timeout(Duration::from_secs(30), relay).await.expect("it is not reported").unwrap();
}

/// No relay runs that could report it.
#[tokio::test]
async fn a_worker_reports_the_age_of_the_oldest_message_that_nobody_publishes() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let (_directory, store) = staged([""], 7_200_000).await;
    let worker = Worker::new("shop", store, Broker::new().queue("payments")).handler::<stages>();
    let mut last = BTreeMap::new();
    let counted = async {
        while last.get("idem_outbox_waiting outbox=shop").copied() != Some(1.0) {
            sleep(Duration::from_millis(5)).await;
            last = measured(&snapshots);
        }
    };
    timeout(Duration::from_secs(30), worker.run_until(counted)).await.expect("it is not reported").unwrap();
    let oldest = last["idem_outbox_oldest_seconds outbox=shop"];
    assert!((7200.0..7300.0).contains(&oldest), "{oldest}");
    assert_eq!(last["idem_outbox_dead outbox=shop"], 0.0);
}

/// The name of the only relay is misspelt.
#[tokio::test]
async fn an_outbox_that_no_relay_looks_at_is_logged_and_counted() {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let (text, subscriber) = idem_conformance::captured();
    let _events = idem_conformance::subscribe(subscriber);
    let (_directory, store) = staged(["one", "two"], 61_000).await;
    let counted = async {
        while measured(&snapshots).get("idem_outbox_unread outbox=shop").copied() != Some(2.0) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    let relay = Relay::new("shpo", store.clone(), MemorySink::new()).run_until(counted);
    timeout(Duration::from_secs(30), relay).await.expect("it is not reported").unwrap();
    let text = text.to_string();
    let line = text.lines().find(|line| line.contains("no relay has looked at"));
    assert!(line.is_some_and(|line| line.contains("WARN") && line.contains("shop")), "{text}");
}

#[tokio::test]
async fn a_worker_whose_messages_nobody_relays_is_an_error_line() {
    let (text, subscriber) = idem_conformance::captured();
    let _events = idem_conformance::subscribe(subscriber);
    let directory = tempfile::tempdir().unwrap();
    let store = Sqlite::connect(&url(&directory)).await.unwrap();
    let worker = Worker::new("shop", store, Broker::new().queue("payments")).handler::<stages>();
    let worker = worker.relay_patience(Duration::from_millis(100));
    let health = worker.health();
    let missing = async {
        while health.unrelayed().is_none() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(30), worker.run_until(missing)).await.expect("it is not reported").unwrap();
    let text = text.to_string();
    let line = text.lines().find(|line| line.contains("no relay of the outbox"));
    assert!(line.is_some_and(|line| line.contains("ERROR")), "{text}");
}

/// Its consumer goes on with the trace of the producer of that message.
#[tokio::test]
async fn a_staged_message_has_the_trace_of_the_message_that_was_handled() {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tokio::sync::watch;
    use tracing_subscriber::layer::SubscriberExt;

    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("idem"));
    let _traces = idem_conformance::subscribe(tracing_subscriber::registry().with(layer));
    let trace = |id: usize| format!("{id:032x}");
    for (batch, inbox) in [(1, false), (20, false), (1, true), (20, true)] {
        let directory = tempfile::tempdir().unwrap();
        let store = Sqlite::connect(&url(&directory)).await.unwrap();
        let broker = Broker::new();
        for id in 1..=20 {
            let order = idem_test::Publication::json(&Order { id: id.to_string(), fail: false }).unwrap();
            broker.publish("payments", order.header("traceparent", format!("00-{}-b7ad6b7169203331-01", trace(id))));
        }
        let processed = watch::Sender::new(0);
        let mut seen = processed.subscribe();
        let worker = Worker::new("shop", store.clone(), broker.queue("payments")).handler::<stages>();
        // One lane: while it runs the first messages, enough others arrive for a batch.
        let worker = worker.concurrency(1).inbox_concurrency(1).batch(batch);
        let worker = if inbox { worker.inbox() } else { worker }.observe(move |observed| {
            processed.send_modify(|processed| *processed += usize::from(*observed.outcome == idem::Outcome::Processed));
        });
        let done = async move { drop(seen.wait_for(|seen| *seen == 20).await) };
        timeout(Duration::from_secs(30), worker.run_until(done)).await.expect("they are not processed").unwrap();
        let sink = MemorySink::new();
        let all = sink.wait_for(|sink| sink.published().len() == 20);
        let relay = Relay::new("shop", store, sink.clone()).run_until(all);
        timeout(Duration::from_secs(30), relay).await.expect("messages wait").unwrap();
        for message in sink.published() {
            let order: Order = message.message().decode().unwrap();
            let carried = message.headers().get_str("traceparent").expect("it has no trace");
            let is_that = carried.contains(&trace(order.id.parse().unwrap()));
            let is_new = !carried.contains("b7ad6b7169203331");
            assert!(is_that && is_new, "{}, batch {batch}, inbox {inbox}: {carried}", order.id);
        }
    }
}
