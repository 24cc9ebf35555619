//! An outbox, its relays, and what they publish.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use idem_core::store::{
    CommitResult, LeaseAnswer, LeaseRequest, OutboxId, OutboxRead, OutboxRow, OutboxRows, StoreError, Transactions,
};
use idem_core::{Error, Outgoing, Relay, RetryPolicy, Sink, StagedMessage, Store};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::soon;
use crate::store::{Setup, World};
use idem_test::tapped_store::{StoreTap, TappedStore};
use idem_test::{MemorySink, Reply};

/// An outbox with the name `billing`, a sink, and the relays between them.
pub(super) struct Line<W: World> {
    pub(super) world: W,
    pub(super) store: W::Store,
    pub(super) outbox: OutboxId,
    pub(super) sink: MemorySink,
}

/// A running relay.
pub(super) struct Running {
    shutdown: oneshot::Sender<()>,
    relay: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Drains it, and returns its result.
    pub(super) async fn stop(self) -> Result<(), Error> {
        let _ = self.shutdown.send(());
        soon(self.relay).await.unwrap()
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(self) -> Result<(), Error> {
        soon(self.relay).await.unwrap()
    }

    /// Ends it as a crash does.
    pub(super) async fn crash(self) {
        self.relay.abort();
        let _ = soon(self.relay).await;
    }
}

/// Fails the calls of a store for which the hook returns true.
#[derive(Clone)]
pub(super) struct Failing(Arc<dyn Fn(&'static str) -> bool + Send + Sync>);

impl StoreTap for Failing {
    async fn before(&self, method: &'static str, _: &[u8]) -> Result<(), StoreError> {
        match (self.0)(method) {
            true => Err(StoreError::ConnectionLost("the test has cut the connection".into())),
            false => Ok(()),
        }
    }
}

/// Stops reading while it is closed.
#[derive(Clone)]
pub(super) struct Gate {
    pub(super) closed: watch::Sender<bool>,
    /// How many reads wait.
    pub(super) waiting: watch::Sender<usize>,
    /// How often failures were recorded.
    pub(super) recorded: watch::Sender<usize>,
}

impl StoreTap for Gate {
    async fn before(&self, method: &'static str, _: &[u8]) -> Result<(), StoreError> {
        if method == "read_outbox" && *self.closed.borrow() {
            self.waiting.send_modify(|waiting| *waiting += 1);
            let _ = self.closed.subscribe().wait_for(|closed| !closed).await;
        }
        if method == "failures_are_recorded" {
            self.recorded.send_modify(|recorded| *recorded += 1);
        }
        Ok(())
    }
}

impl<W: World> Line<W> {
    pub(super) async fn new(world: W) -> Self {
        let store = world.store(Setup::default()).await.unwrap();
        let outbox = store.register_outbox("billing").await.unwrap();
        Self { world, store, outbox, sink: MemorySink::new() }
    }

    /// Stages messages in one transaction, and wakes the relays of this process.
    pub(super) async fn stage(&self, messages: impl IntoIterator<Item = Outgoing>) {
        let messages = messages.into_iter().map(|message| StagedMessage::new(Uuid::new_v4(), message)).collect();
        let mut txn = self.store.begin(Duration::from_secs(30)).await.unwrap();
        self.store.stage(&mut txn, self.outbox, messages, Vec::new());
        let done = self.store.commit(txn).await;
        assert!(matches!(done, CommitResult::Done), "{done:?}");
        self.store.facts().notifier.notify();
    }

    /// Starts a relay to the sink of this line.
    pub(super) fn start(&self) -> Running {
        self.start_with(self.relay(self.store.clone(), self.sink.clone()))
    }

    /// A relay with short times.
    pub(super) fn relay<S: Store>(&self, store: S, sink: MemorySink) -> Relay<S, MemorySink> {
        let retry = RetryPolicy::new().max_attempts(3).min_delay(Duration::from_millis(10)).factor(1.0);
        Relay::new("billing", store, sink)
            .poll_interval(Duration::from_millis(20))
            .publish_timeout(Duration::from_secs(5))
            .retry(retry)
    }

    pub(super) fn start_with<S: Store, K: Sink>(&self, relay: Relay<S, K>) -> Running {
        let (shutdown, when) = oneshot::channel();
        let relay = tokio::spawn(relay.run_until(async {
            let _ = when.await;
        }));
        Running { shutdown, relay }
    }

    /// A store of which these calls fail.
    pub(super) fn failing(
        &self,
        hook: impl Fn(&'static str) -> bool + Send + Sync + 'static,
    ) -> TappedStore<W::Store, Failing> {
        TappedStore::new(self.store.clone(), Failing(Arc::new(hook)))
    }

    /// A store whose reads wait while the gate is closed.
    pub(super) fn gated(&self) -> (TappedStore<W::Store, Gate>, Gate) {
        let (waiting, recorded) = (watch::Sender::new(0), watch::Sender::new(0));
        let gate = Gate { closed: watch::Sender::new(false), waiting, recorded };
        (TappedStore::new(self.store.clone(), gate.clone()), gate)
    }

    /// Has the sink answer messages with these texts only when it is told to: it refuses them then. It confirms them when they are
    /// published again.
    pub(super) fn refusing(&self, refused: impl Fn(&str) -> bool + Send + 'static) -> watch::Sender<bool> {
        let refuse = watch::Sender::new(false);
        let (when, mut seen) = (refuse.subscribe(), BTreeSet::new());
        self.sink.on_publish(move |message| {
            let text = text(message);
            match refused(&text) && seen.insert(text) {
                true => Reply::RefuseWhen(when.clone()),
                false => Reply::Confirm,
            }
        });
        refuse
    }

    /// The messages that have still to be published.
    pub(super) async fn waiting(&self) -> Vec<OutboxRow> {
        self.store.read_outbox(self.outbox, &OutboxRead::ALL).await.unwrap().rows
    }

    /// Asks for the lease under a token.
    pub(super) async fn lease(&self, token: Uuid, lease: Duration) -> LeaseAnswer {
        self.store.lease_outbox(self.outbox, token, LeaseRequest::Hold(lease)).await.unwrap()
    }

    /// Waits until so many messages are published.
    pub(super) async fn published(&self, number: usize) -> Vec<String> {
        let enough = self.sink.wait_for(|sink| sink.published().len() >= number);
        if tokio::time::timeout(Duration::from_secs(40), enough).await.is_err() {
            panic!("after 40 seconds there are only {} of {number} messages", self.sink.published().len());
        }
        texts(&self.sink.published())
    }

    /// Waits until nothing has to be published any more.
    pub(super) async fn is_empty(&self) {
        soon(async {
            while !self.waiting().await.is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

/// A message with this text.
pub(super) fn message(text: impl ToString) -> Outgoing {
    Outgoing::new("orders", text.to_string())
}

pub(super) fn texts(messages: &[StagedMessage]) -> Vec<String> {
    messages.iter().map(text).collect()
}

pub(super) fn text(message: &StagedMessage) -> String {
    String::from_utf8_lossy(message.payload()).into_owned()
}
