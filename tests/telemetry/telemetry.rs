//! The telemetry of a worker: metrics by consumer, handler and outcome, and log lines of the right level.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};

use idem::operator::{Asked, Operator};
use idem::prelude::*;
use idem_test::{Broker, Publication};
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use serde::{Deserialize, Serialize};
use sqlx::{Connection, SqliteConnection};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::Level;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

mod outbox;

#[derive(Serialize, Deserialize)]
struct Order {
    id: String,
    fail: bool,
}

#[idempotent(key = "id", name = "order")]
async fn order(order: Order, _tx: &mut SqliteConnection) -> Result<(), BoxError> {
    match order.id.as_str() {
        "later" => Err("the bank is closed".into()),
        _ if order.fail => Err(permanent("refused")),
        _ => Ok(()),
    }
}

/// Records the levels of idem's log lines and the names of its spans, and the lines with their fields.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<(Vec<Level>, Vec<&'static str>)>>, Arc<Mutex<Vec<String>>>);

impl Lines {
    /// The one line that contains this.
    fn line(&self, part: &str) -> String {
        let lines = self.1.lock().unwrap();
        let found: Vec<_> = lines.iter().filter(|line| line.contains(part)).collect();
        let [line] = found[..] else { panic!("{part:?} in {found:?} of {lines:?}") };
        line.clone()
    }
}

/// The command at the end of a line.
fn command(line: &str) -> &str {
    line.rsplit_once(" show=").map(|(_, command)| command).unwrap_or_else(|| panic!("no command ends {line:?}"))
}

/// The fields of an event as text.
struct Text(String);

impl tracing::field::Visit for Text {
    fn record_debug(&mut self, field: &tracing::field::Field, value: &dyn std::fmt::Debug) {
        self.0.push_str(&format!(" {field}={value:?}"));
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> tracing_subscriber::Layer<S> for Lines {
    fn on_event(&self, event: &tracing::Event<'_>, _: Context<'_, S>) {
        if event.metadata().target().starts_with("idem") {
            self.0.lock().unwrap().0.push(*event.metadata().level());
            let mut text = Text(event.metadata().level().to_string());
            event.record(&mut text);
            self.1.lock().unwrap().push(text.0);
        }
    }

    fn on_new_span(&self, attributes: &tracing::span::Attributes<'_>, _: &tracing::span::Id, _: Context<'_, S>) {
        let names = attributes.metadata().fields().iter().map(|field| field.name());
        self.0.lock().unwrap().1.extend(names);
        let (name, target) = (attributes.metadata().name(), attributes.metadata().target());
        assert_eq!(target == "idem_core::telemetry", name == "process", "the target of the span {name} is {target}");
    }
}

type Empty = Worker<Sqlite, idem_test::Queue, (), idem::codec::Json, idem::handler::NoHandlers>;
type Billing = Worker<Sqlite, idem_test::Queue, (), idem::codec::Json, idem::handler::WithHandlers>;

/// Runs a worker on these messages until they are all settled, and returns the metrics and the lines.
async fn run(messages: Vec<Publication>) -> (BTreeMap<String, f64>, Lines) {
    run_in_batches(messages, 1).await
}

/// The same in batches of at most this size.
async fn run_in_batches(messages: Vec<Publication>, batch: usize) -> (BTreeMap<String, f64>, Lines) {
    let file = tempfile::tempdir().unwrap();
    run_on(&url(&file), messages, |worker| worker.batch(batch), 0).await
}

fn url(directory: &tempfile::TempDir) -> String {
    format!("sqlite://{}/idem.db", directory.path().display())
}

/// Does so with these settings, until at least so many outcomes are observed.
async fn run_on(
    url: &str,
    messages: Vec<Publication>,
    set: impl FnOnce(Billing) -> Billing,
    outcomes: usize,
) -> (BTreeMap<String, f64>, Lines) {
    let recorder = DebuggingRecorder::new();
    let snapshots = recorder.snapshotter();
    let _metrics = metrics::set_default_local_recorder(&recorder);
    let lines = Lines::default();
    let _lines = idem_conformance::subscribe(tracing_subscriber::registry().with(lines.clone()));
    run_worker(url, messages, |worker| set(worker.handler::<order>()), outcomes).await;
    (measured(&snapshots), lines)
}

/// Does so with these handlers and settings, and returns the log as text.
async fn log_of(messages: Vec<Publication>, set: impl FnOnce(Empty) -> Billing, outcomes: usize) -> String {
    let file = tempfile::tempdir().unwrap();
    let (text, subscriber) = idem_conformance::captured();
    let _events = idem_conformance::subscribe(subscriber);
    run_worker(&url(&file), messages, set, outcomes).await;
    text.to_string()
}

/// Runs a worker until all messages are settled and at least so many outcomes are observed.
async fn run_worker(url: &str, messages: Vec<Publication>, set: impl FnOnce(Empty) -> Billing, outcomes: usize) {
    let store = Sqlite::connect(url).await.unwrap();
    let broker = Broker::new();
    messages.into_iter().for_each(|message| broker.publish("orders", message));
    let (idle, observed) = (broker.clone(), watch::Sender::new(0));
    let mut seen = observed.subscribe();
    let worker = set(Worker::new("billing", store, broker.queue("orders")));
    let worker = worker.observe(move |_| observed.send_modify(|outcomes| *outcomes += 1));
    let done = async move {
        idle.idle().await;
        seen.wait_for(|seen| *seen >= outcomes).await.unwrap();
    };
    timeout(Duration::from_secs(30), worker.run_until(done)).await.expect("the outcomes do not come").unwrap();
}

/// The metrics since the last call, each with its labels.
fn measured(snapshots: &Snapshotter) -> BTreeMap<String, f64> {
    let mut measured = BTreeMap::new();
    for (key, unit, description, value) in snapshots.snapshot().into_vec() {
        let name = key.key().name();
        assert!(description.is_some(), "{name} has no description");
        assert_eq!(unit.is_some(), name.ends_with("_seconds"), "the unit of {name}");
        let labels: Vec<_> = key.key().labels().map(|label| format!("{}={}", label.key(), label.value())).collect();
        let value = match value {
            DebugValue::Counter(count) => count as f64,
            DebugValue::Gauge(value) => value.into_inner(),
            DebugValue::Histogram(values) => values.len() as f64,
        };
        measured.insert(format!("{name} {}", labels.join(" ")), value);
    }
    measured
}

fn message(id: &str, fail: bool) -> Publication {
    Publication::json(&Order { id: id.to_owned(), fail }).unwrap()
}

#[tokio::test]
async fn deliveries_are_counted_by_consumer_handler_and_outcome() {
    let messages = vec![
        message("a", false),
        message("a", false),
        message("b", false),
        message("a", true),
        message("c", true),
        Publication::new("no JSON"),
    ];
    let (measured, _) = run(messages).await;
    let outcome =
        |outcome: &str| measured[&format!("idem_deliveries_total consumer=billing handler=order outcome={outcome}")];
    let outcomes = ["processed", "duplicate", "conflict", "scheduled", "dead", "parked"].map(outcome);
    assert_eq!(outcomes, [2.0, 1.0, 1.0, 0.0, 2.0, 0.0]);
    let times = |name: &str| measured[&format!("{name} consumer=billing handler=order")];
    // Each decoded delivery requested its claim; those that got it ran.
    assert_eq!(times("idem_claim_wait_seconds"), 5.0);
    assert_eq!(times("idem_handler_seconds"), 3.0);
    assert_eq!(times("idem_commit_seconds"), 2.0);
    assert_eq!(times("idem_duplicate_age_seconds"), 1.0);
    // None of them ran from the inbox.
    assert_eq!(times("idem_inbox_wait_seconds"), 0.0);
    for gauge in
        ["idem_in_flight", "idem_parked", "idem_blocked", "idem_scheduled", "idem_dead", "idem_oldest_due_seconds"]
    {
        assert!(measured.contains_key(&format!("{gauge} consumer=billing")), "{gauge}");
    }
    assert_eq!(measured["idem_in_flight consumer=billing"], 0.0);
    assert!(measured.contains_key("idem_source_lag consumer=billing source=orders"), "{measured:?}");
}

#[tokio::test]
async fn a_batch_has_one_claim_and_one_commit_of_a_handler() {
    let messages = ["a", "b", "c"].map(|id| message(id, false)).to_vec();
    let (measured, _) = run_in_batches(messages, 3).await;
    let times = |name: &str| measured[&format!("{name} consumer=billing handler=order")];
    assert_eq!(measured["idem_deliveries_total consumer=billing handler=order outcome=processed"], 3.0);
    assert_eq!(times("idem_handler_seconds"), 3.0);
    // How many are there when a batch begins is not known.
    let (claims, commits) = (times("idem_claim_wait_seconds"), times("idem_commit_seconds"));
    assert!((1.0..=3.0).contains(&claims) && claims == commits, "{claims} and {commits}");
}

#[tokio::test]
async fn a_duplicate_is_a_debug_line_and_never_more() {
    let (_, lines) = run(vec![message("a", false), message("a", false)]).await;
    let (levels, fields) = &*lines.0.lock().unwrap();
    assert!(levels.contains(&Level::DEBUG));
    assert!(!levels.iter().any(|level| *level < Level::INFO), "{levels:?}");
    let line = lines.line(r#"outcome="duplicate""#);
    assert!(line.ends_with(" why=idem why billing/order a"), "{line:?}");
    for field in ["messaging.system", "messaging.destination.name", "messaging.operation.type", "messaging.message.id"]
    {
        assert!(fields.contains(&field), "{field}");
    }
}

#[idempotent(key = "id", name = "speak")]
async fn speak(_order: Order, _tx: &mut SqliteConnection) -> Result<(), BoxError> {
    tracing::info!("the handler speaks");
    Ok(())
}

#[tokio::test]
async fn the_lines_of_a_handler_are_inside_the_span_of_its_message() {
    for (batch, inbox) in [(1, false), (20, false), (1, true), (20, true)] {
        let messages = (10..30).map(|id| message(&id.to_string(), false)).collect();
        // One lane: while it runs the first messages, enough others arrive for a batch.
        let one_lane = |worker: Empty| worker.handler::<speak>().concurrency(1).inbox_concurrency(1);
        // That a message is stored is an outcome as well.
        let outcomes = if inbox { 40 } else { 20 };
        let text = log_of(messages, |worker| set(one_lane(worker), batch, inbox), outcomes).await;
        let lines: Vec<&str> = text.lines().filter(|line| line.contains("the handler speaks")).collect();
        assert_eq!(lines.len(), 20, "{text}");
        for id in 10..30 {
            let fields = [r#"idem.handler="speak""#.to_owned(), format!("idem.key={id}")];
            let line =
                lines.iter().find(|line| line.contains("process{") && fields.iter().all(|field| line.contains(field)));
            assert!(line.is_some(), "{id}, batch {batch}, inbox {inbox}: {lines:?}");
        }
    }
}

#[tokio::test]
async fn a_failure_is_a_line_with_its_row_its_attempt_and_its_cause() {
    let (_, lines) = run(vec![message("later", false), message("a", true), Publication::new("no JSON")]).await;
    let scheduled = lines.line("the message is scheduled");
    for part in ["WARN", "id=", "attempt=1", "due=1.", "error=\"the bank is closed\""] {
        assert!(scheduled.contains(part), "{part:?} is not in {scheduled:?}");
    }
    let dead = lines.line("reason=permanent");
    for part in ["ERROR", "the message is a dead letter", "id=", "attempt=1", "error=\"refused\""] {
        assert!(dead.contains(part), "{part:?} is not in {dead:?}");
    }
    let undecodable = lines.line("reason=undecodable");
    assert!(undecodable.contains("id=") && undecodable.contains("expected"), "{undecodable:?}");
}

#[tokio::test]
async fn a_line_about_a_message_ends_with_the_command_that_shows_it() {
    let file = tempfile::tempdir().unwrap();
    let messages = vec![message("later", false), message("a", true), message("it's b", false), message("it's b", true)];
    let (_, lines) = run_on(&url(&file), messages, |worker| worker, 0).await;
    let operator = Operator::new(&Sqlite::connect(&url(&file)).await.unwrap());
    for (part, key) in [("the message is scheduled", "later"), ("reason=permanent", "a")] {
        let line = lines.line(part);
        let id = command(&line).strip_prefix("idem dead show ").unwrap().parse().unwrap();
        let shown = operator.show(id).await.unwrap().unwrap();
        assert_eq!(shown.row.identity.key.to_string(), key);
    }
    let conflict = lines.line("reason=conflict");
    assert_eq!(command(&conflict), r"idem why billing/order 'it'\''s b'");
    let why = operator.why(&Asked::new("billing/order", "it's b")).await.unwrap();
    assert!(why.claim.is_some() && why.rows.len() == 1, "{why:?}");
}

#[tokio::test]
async fn the_line_of_a_message_without_a_key_is_inside_a_span_with_its_handler() {
    let text = log_of(vec![Publication::new("no JSON")], |worker| worker.handler::<order>(), 0).await;
    let line = text.lines().find(|line| line.contains("the message is a dead letter")).unwrap();
    assert!(line.contains(r#"idem.handler="order""#), "{line}");
}

#[idempotent(key = "id", natural)]
async fn refuses(_: Order, _: &mut SqliteConnection) -> Result<(), BoxError> {
    Err(permanent("never"))
}

/// It is not recorded, because the dead letter of the first one has the claim.
#[tokio::test]
async fn the_failure_of_a_copy_is_a_line() {
    let messages = vec![message("a", false), message("a", false)];
    let text = log_of(messages, |worker| worker.handler::<refuses>(), 0).await;
    let warning = text.lines().find(|line| line.contains("WARN") && line.contains("is not recorded"));
    assert!(warning.is_some_and(|line| line.contains("never") && line.contains("duplicate")), "{text}");
}

#[tokio::test]
async fn a_conflict_is_a_line_with_its_row_and_its_key() {
    for (batch, inbox) in [(1, false), (2, false), (1, true), (2, true)] {
        let (file, messages) = (tempfile::tempdir().unwrap(), vec![message("a", false), message("a", true)]);
        let (_, lines) = run_on(&url(&file), messages, |worker| set(worker, batch, inbox), 0).await;
        let conflict = lines.line("reason=conflict");
        assert!(conflict.contains("another message was already claimed under the key a"), "{conflict:?}");
        assert!(conflict.contains(" id="), "{conflict:?}");
    }
}

fn set(worker: Billing, batch: usize, inbox: bool) -> Billing {
    let worker = worker.batch(batch);
    if inbox { worker.inbox() } else { worker }
}

/// Changes idem's tables while no worker runs.
async fn change(url: &str, sql: &'static str) {
    let mut database = SqliteConnection::connect(url).await.unwrap();
    sqlx::raw_sql(sql).execute(&mut database).await.unwrap();
}

#[tokio::test]
async fn a_message_that_is_too_old_is_a_line_with_its_row() {
    for (batch, inbox) in [(1, false), (2, false), (1, true), (2, true)] {
        let file = tempfile::tempdir().unwrap();
        run_on(&url(&file), vec![message("a", false)], |worker| worker, 0).await;
        change(&url(&file), "UPDATE idem_handlers SET pruned_through = unixepoch() * 1000").await;
        let old = message("b", false).published_at(SystemTime::UNIX_EPOCH);
        let (_, lines) = run_on(&url(&file), vec![old], |worker| set(worker, batch, inbox), 0).await;
        let old = lines.line("reason=too old");
        assert!(old.contains(" id=") && old.contains("it was published"), "{old:?}");
    }
}

/// Nobody is there when the process ends. A later poll of the inbox finds it.
#[tokio::test]
async fn a_message_that_crashed_is_a_line_with_its_row_and_an_outcome() {
    let file = tempfile::tempdir().unwrap();
    run_on(&url(&file), vec![message("later", false)], |worker| worker, 0).await;
    change(&url(&file), "UPDATE idem_inbox_messages SET crash_count = 4, run_at = 0").await;
    let (measured, lines) = run_on(&url(&file), Vec::new(), |worker| worker, 1).await;
    let crashed = lines.line("reason=crashed");
    for part in ["ERROR", "the message is a dead letter", " id=", "attempt=1", "4 times", "the key later"] {
        assert!(crashed.contains(part), "{part:?} is not in {crashed:?}");
    }
    assert_eq!(measured["idem_deliveries_total consumer=billing handler=order outcome=dead"], 1.0);
}

#[tokio::test]
async fn the_start_is_a_line_with_what_the_worker_is() {
    let (_, lines) = run(vec![message("a", false)]).await;
    let start = lines.line("the worker has started");
    for part in [
        "INFO",
        "consumer=\"billing\"",
        "handlers=[\"order\"]",
        "source=\"orders\"",
        "SQLite",
        "idem.db",
        " concurrency=16",
        "inbox_concurrency=4",
    ] {
        assert!(start.contains(part), "{part:?} is not in {start:?}");
    }
}
