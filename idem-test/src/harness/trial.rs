//! A trial of one handler.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_core::store::{Filter, Page, Row};
use idem_core::{
    Codec, Error, Extract, Handler, HasConnection, Inbox, Json, Outcome, RetryPolicy, Store, SuspectLock, Worker,
};
use tokio::sync::{oneshot, watch};

use crate::tapped_store::{Over, TappedStore};
use crate::{Broker, Publication, Tapped};

use super::Crash;
use super::cleanup::Cleanup;
use super::connect::{Connect, Connecting};
use super::crash::Fate;
use super::process::{Process, Running};

const CONSUMER: &str = "trial";
const QUEUE: &str = "trial";

/// A trial of one handler. Real workers run it, each in a separate process (a separate runtime), against a real
/// database and the in-process broker.
///
/// ```no_run
/// # use idem_test::{Crash, Trial};
/// # use idem_core::{BoxError, Handler, Sqlite};
/// # async fn test<order_paid: Handler<Params = (), Connection = sqlx::SqliteConnection, Message: serde::de::DeserializeOwned>>(
/// #     event: serde_json::Value, url: String) -> Result<(), BoxError> {
/// let trial = Trial::new(move || Sqlite::options(&url).connect()).handler::<order_paid>().await?;
/// trial.deliver_json(&event)?.times(10).await?;
/// trial.deliver_json(&event)?.crash(Crash::AfterCommit).once().await?;
/// # Ok(()) }
/// ```
///
/// Each call returns when the queue is empty and no message in the inbox is scheduled. The test then checks its own
/// tables. Failed attempts are retried within milliseconds, up to 5 attempts in total.
///
/// A message that an earlier test has processed in the same tables is a duplicate. On PostgreSQL, `Trial::postgres`
/// (feature `postgres`) has tables of its own for each test; on SQLite, give each test a new file.
pub struct Trial<S> {
    broker: Broker,
    inbox: Inbox<S>,
    launch: Launch,
    watched: Watched,
    // Declared last: it runs when nothing here is connected any more.
    _cleanup: Cleanup,
}

type Launch = Box<dyn Fn(Start, Fate, oneshot::Receiver<()>) -> Running + Send + Sync>;

/// The arguments of one process.
pub(super) struct Start {
    broker: Broker,
    watched: Watched,
    concurrency: usize,
}

/// The outcomes so far, and a signal that there is a new one.
#[derive(Clone, Default)]
pub(super) struct Watched {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    changed: watch::Sender<()>,
}

/// A trial without a handler yet; state can still be added. The [module](super) has an example.
#[derive(Debug)]
pub struct Bench<F, St = ()> {
    pub(super) connect: F,
    state: St,
    inbox: bool,
    batch: usize,
}

impl Trial<()> {
    /// Creates a trial in which each process connects to its database with this function, for example `move ||
    /// Sqlite::options(&url).connect()`.
    #[allow(clippy::new_ret_no_self, reason = "as for a worker, the handler comes last")]
    pub fn new<F>(connect: F) -> Bench<F> {
        Bench { connect, state: (), inbox: false, batch: 1 }
    }
}

impl<F, St> Bench<F, St> {
    /// Sets the state from which the handler extracts [`State`](idem_core::State).
    pub fn state<T>(self, state: T) -> Bench<F, T> {
        Bench { connect: self.connect, state, inbox: self.inbox, batch: self.batch }
    }

    /// Stores each message before it runs, as [`Worker::inbox`] does.
    pub fn inbox(mut self) -> Self {
        self.inbox = true;
        self
    }

    /// Processes up to `messages` messages together, as [`Worker::batch`] does.
    pub fn batch(mut self, messages: usize) -> Self {
        self.batch = messages;
        self
    }

    /// Sets the handler. The worker reads CloudEvents if the handler's key is that of a CloudEvent.
    ///
    /// # Errors
    /// Fails if the database cannot be used.
    pub async fn handler<H>(self) -> Result<Trial<<F::Output as Connecting>::Store>, Error>
    where
        H: Handler,
        F: Connect,
        <F::Output as Connecting>::Store: HasConnection<H::Connection>,
        H::Params: Extract<St>,
        St: Clone + Send + Sync + 'static,
        Json: Codec<H::Message>,
    {
        let Self { connect, state, inbox, batch } = self;
        // Before anything is created, so that it runs after a failure, too.
        let cleanup = connect.cleanup();
        let store = connect.connect().await?;
        let connect = Arc::new(connect);
        let launch = move |start: Start, fate: Fate, shutdown: oneshot::Receiver<()>| -> Running {
            let (connect, state) = (connect.clone(), state.clone());
            Box::pin(async move {
                let store = TappedStore::new(connect.connect().await?, fate.clone());
                let source = Tapped::new(start.broker.queue(QUEUE), fate);
                let watched = start.watched;
                let quick = RetryPolicy::new().min_delay(Duration::from_millis(1)).max_delay(Duration::from_millis(10));
                let worker =
                    Worker::new(CONSUMER, store, source)
                        .state(state)
                        .handler::<Over<H, <F::Output as Connecting>::Store, Fate>>();
                let worker = if inbox { worker.inbox() } else { worker };
                let worker = if H::NEEDS_CLOUD_EVENT { worker.cloud_events() } else { worker };
                worker
                    .batch(batch)
                    .concurrency(start.concurrency)
                    .inbox_concurrency(2)
                    .retry(quick)
                    .poll_interval(Duration::from_millis(20))
                    .lease_duration(Duration::from_millis(500))
                    .suspect_lock(SuspectLock::new())
                    .observe(move |_, outcome| watched.push(outcome.clone()))
                    .run_until(async {
                        // A dropped sender also means shutdown.
                        let _ = shutdown.await;
                    })
                    .await
            })
        };
        Ok(Trial {
            broker: Broker::new(),
            inbox: Inbox::new(&store, CONSUMER),
            launch: Box::new(launch),
            watched: Watched::default(),
            _cleanup: cleanup,
        })
    }
}

impl<S: Store> Trial<S> {
    /// The outcomes of deliveries and of runs from the inbox so far, in order. The last outcomes of a crashed process
    /// may be missing.
    pub fn outcomes(&self) -> Vec<Outcome> {
        self.watched.outcomes().clone()
    }

    /// The dead letters, newest first.
    ///
    /// # Errors
    /// Fails if the database cannot be used.
    pub async fn dead_letters(&self) -> Result<Vec<Row>, Error> {
        self.inbox.list(&Filter::default(), Page::default()).await
    }

    /// The inbox, to replay and discard dead letters. A replayed message runs with the next delivery, or when
    /// [`run`](Self::run) is called.
    pub fn inbox(&self) -> &Inbox<S> {
        &self.inbox
    }

    /// The broker, to inject faults. The queue is named `trial`.
    pub fn broker(&self) -> &Broker {
        &self.broker
    }

    /// Runs a worker until the queue is empty and no message in the inbox is scheduled.
    ///
    /// # Errors
    /// Fails if the worker cannot start.
    pub async fn run(&self) -> Result<(), Error> {
        let mut process = self.start(None, 1)?;
        tokio::select! {
            ended = process.ended() => return ended,
            done = self.done() => done?,
        }
        process.stop().await
    }

    pub(crate) fn start(&self, crash: Option<Crash>, concurrency: usize) -> Result<Process, Error> {
        let start = Start { broker: self.broker.clone(), watched: self.watched.clone(), concurrency };
        let launch = |fate, shutdown| (self.launch)(start, fate, shutdown);
        Process::start(Fate::new(crash), launch)
            .map_err(|error| Error::Config(format!("a runtime for a worker could not be made: {error}")))
    }

    pub(crate) fn publish(&self, message: &Publication) {
        self.broker.publish(QUEUE, message.clone());
    }

    /// Waits until the queue is empty and no message in the inbox is scheduled.
    pub(crate) async fn done(&self) -> Result<(), Error> {
        let mut changed = self.watched.changed.subscribe();
        loop {
            self.broker.idle().await;
            changed.mark_unchanged();
            let scheduled = Filter::new().scheduled();
            if self.inbox.list(&scheduled, Page::new(1)).await?.is_empty() {
                return Ok(());
            }
            // A scheduled row runs, and its outcome is observed. The sender lives in `self`.
            let _ = tokio::time::timeout(Duration::from_millis(200), changed.changed()).await;
        }
    }
}

impl<S> std::fmt::Debug for Trial<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trial").field("outcomes", &*self.watched.outcomes()).finish_non_exhaustive()
    }
}

impl Watched {
    fn outcomes(&self) -> std::sync::MutexGuard<'_, Vec<Outcome>> {
        self.outcomes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, outcome: Outcome) {
        self.outcomes().push(outcome);
        self.changed.send_replace(());
    }
}
