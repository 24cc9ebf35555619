//! Relays that publish, lose confirms, are refused, die and end.

use std::collections::HashMap;
use std::time::Duration;

use idem_conformance::store::{Setup, World};
use idem_core::store::{CommitResult, OutboxId, OutboxRows, Page, Transactions};
use idem_core::{Error, Outgoing, Relay, RetryPolicy, StagedMessage};
use idem_test::harness::TracedProcess;
use idem_test::trace::Trace;
use idem_test::{MemorySink, Reply};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

/// The name of the outbox.
const OUTBOX: &str = "orders";

/// How long a relay has a lease.
const LEASE: Duration = Duration::from_millis(600);

/// An outbox, its broker, and the trace of its relays.
struct Line<W: World> {
    world: W,
    outbox: OutboxId,
    store: W::Store,
    sink: MemorySink,
    trace: Trace,
    staged: usize,
}

/// A relay that runs.
struct Running {
    process: TracedProcess,
    shutdown: oneshot::Sender<()>,
    relay: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Ends it as a crash does.
    async fn crash(self) {
        self.relay.abort();
        let _ = self.relay.await;
        self.process.end();
    }

    async fn stop(self) {
        let _ = self.shutdown.send(());
        self.relay.await.unwrap().unwrap();
        self.process.end();
    }
}

impl<W: World> Line<W> {
    async fn new(world: W) -> Self {
        let store = world.store(Setup::default()).await.unwrap();
        let outbox = store.register_outbox(OUTBOX).await.unwrap();
        let sink = MemorySink::new();
        let mut calls: HashMap<String, usize> = HashMap::new();
        sink.on_publish(move |message| {
            let text = String::from_utf8_lossy(message.payload()).into_owned();
            let call = calls.entry(text.clone()).or_default();
            *call += 1;
            match (text.rsplit(' ').next(), *call) {
                (Some("lost"), 1) => Reply::LoseConfirm,
                (Some("away"), 1) => Reply::Away,
                (Some("late"), 1) => Reply::Hang,
                (Some("refused"), 1) | (Some("dead"), _) => Reply::Refuse("no queue".to_owned()),
                _ => Reply::Confirm,
            }
        });
        Self { world, outbox, store, sink, trace: Trace::new(), staged: 0 }
    }

    /// Stages messages of each of some keys, one behind the other, and one without a key.
    async fn stage(&mut self, keys: usize, texts: &[&str]) {
        let of_key = |key: usize| {
            let text = move |text: &&str| Outgoing::new(OUTBOX, format!("{key} {text}")).key(format!("key {key}"));
            texts.iter().map(text).collect::<Vec<_>>()
        };
        let free = Outgoing::new(OUTBOX, format!("free {}", self.staged));
        let messages: Vec<StagedMessage> = (self.staged..self.staged + keys)
            .flat_map(of_key)
            .chain([free])
            .map(|message| StagedMessage::new(Uuid::new_v4(), message))
            .collect();
        self.staged += messages.len();
        let mut txn = self.store.begin(Duration::from_secs(30)).await.unwrap();
        self.store.stage(&mut txn, self.outbox, messages, Vec::new());
        let done = self.store.commit(txn).await;
        assert!(matches!(done, CommitResult::Done), "{done:?}");
    }

    async fn start(&self) -> Running {
        let process = TracedProcess::new(&self.trace);
        let store = process.store(self.world.store(Setup::default()).await.unwrap());
        let retry = RetryPolicy::new().max_attempts(3).min_delay(Duration::from_millis(10)).factor(1.0);
        let relay = Relay::new(OUTBOX, store, process.sink(self.sink.clone()))
            .poll_interval(Duration::from_millis(20))
            .publish_timeout(Duration::from_millis(300))
            .lease_duration(LEASE)
            .retry(retry);
        let (shutdown, when) = oneshot::channel();
        let relay = tokio::spawn(relay.run_until(async {
            let _ = when.await;
        }));
        Running { process, shutdown, relay }
    }

    async fn published(&self, number: usize) {
        self.sink.wait_for(|sink| sink.published().len() >= number).await;
    }

    /// Waits until nothing has to be published any more.
    async fn is_empty(&self) {
        while self.store.outbox_stats(self.outbox, 1000).await.unwrap().waiting > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

/// The trace of two relays, of which one is killed in the middle, and of a third one. Returns it with the number of messages.
pub(crate) async fn relayed<W: World>(world: W) -> (String, usize) {
    let mut line = Line::new(world).await;
    line.stage(6, &["first", "lost", "away", "refused", "late", "dead", "last"]).await;
    let (first, second) = (line.start().await, line.start().await);
    line.published(20).await;
    line.stage(10, &["first", "second"]).await;
    line.published(30).await;
    first.crash().await;
    line.stage(10, &["first", "second"]).await;
    let third = line.start().await;
    line.is_empty().await;
    second.stop().await;
    line.stage(4, &["first", "second", "third"]).await;
    line.is_empty().await;
    third.stop().await;
    let dead = line.store.dead_outgoing(line.outbox, Page::new(100)).await.unwrap();
    assert_eq!(dead.len(), 6);
    (line.trace.text(), line.staged)
}

/// A short trace, for changes.
pub(crate) async fn shortly_relayed<W: World>(world: W) -> String {
    let mut line = Line::new(world).await;
    line.stage(1, &["first", "second"]).await;
    let relay = line.start().await;
    line.is_empty().await;
    relay.stop().await;
    line.trace.text()
}
