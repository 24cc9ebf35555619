//! A trial of one handler.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_core::operator::{Filter, Operator, Page};
use idem_core::store::Row;
use idem_core::{Error, Outcome, Store};
use tokio::sync::{oneshot, watch};

use crate::trace::Trace;
use crate::{Broker, Publication};

use super::Crash;
use super::cleanup::Cleanup;
use super::crash_plan::CrashPlan;
use super::polls::Point;
use super::process::{Process, Running};
use super::process_thread::ProcessThread;
use super::subject::Subject;

pub(super) const CONSUMER: &str = "trial";
pub(super) const QUEUE: &str = "trial";

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
/// Each call returns when the queue is empty, no message in the inbox is scheduled, and, with a
/// [relay](super::Bench::relay), none is in the outbox. The test then checks its own tables. Failed attempts are retried
/// within milliseconds, up to 5 attempts in total. A call in doubt is repeated only after its lease, which is the call's
/// timeout and ten seconds; in [`crash_everywhere`](Self::crash_everywhere), at once.
///
/// A message that an earlier test has processed in the same tables is a duplicate. `Trial::sqlite` and `Trial::postgres`
/// (features of the same names) have tables of their own for each test.
pub struct Trial<S> {
    broker: Broker,
    pub(super) store: S,
    operator: Operator<S>,
    launch: Launch,
    pub(super) subject: Arc<Subject>,
    watched: Watched,
    trace: Option<Trace>,
    // Declared last: it runs when nothing here is connected any more.
    _cleanup: Cleanup,
}

pub(super) type Launch = Box<dyn Fn(Start, CrashPlan, oneshot::Receiver<()>) -> Running + Send + Sync>;

/// The arguments of one process.
pub(super) struct Start {
    pub(super) broker: Broker,
    pub(super) watched: Watched,
    pub(super) concurrency: usize,
    /// Whether it takes messages ahead of those that it runs, as a worker does by default. A process that dies does not,
    /// so that no other message is hit, and one of several does not, so that each gets some.
    pub(super) ahead: bool,
    /// How long the rest of the trial waits for an inbox row that a dead process had fetched.
    pub(super) lease: Duration,
}

/// The lease of inbox rows in a process that lives.
const LEASE: Duration = Duration::from_millis(500);

/// The lease of inbox rows in a process that dies: it has no other process from which to keep them.
const SHORT_LEASE: Duration = Duration::from_millis(50);

/// The outcomes so far, and a signal that there is a new one.
#[derive(Clone, Default)]
pub(super) struct Watched {
    outcomes: Arc<Mutex<Vec<Outcome>>>,
    changed: watch::Sender<()>,
}

impl<S: Store> Trial<S> {
    pub(super) fn made(
        store: &S,
        launch: Launch,
        (subject, trace): (Arc<Subject>, Option<Trace>),
        cleanup: Cleanup,
    ) -> Self {
        Self {
            broker: Broker::new(),
            store: store.clone(),
            operator: Operator::new(store).consumer(CONSUMER),
            launch,
            subject,
            watched: Watched::default(),
            trace,
            _cleanup: cleanup,
        }
    }

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
        Ok(self.operator.list(&Filter::default(), Page::default()).await?.rows)
    }

    /// The operator, to replay and discard dead letters. A replayed message runs with the next delivery, or when
    /// [`run`](Self::run) is called.
    pub fn operator(&self) -> &Operator<S> {
        &self.operator
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

    /// Runs a worker until a process of it reaches this point, and ends it there.
    ///
    /// # Errors
    /// Fails if the worker cannot start, or ends by itself.
    #[doc(hidden)]
    pub async fn run_into(&self, crash: Crash) -> Result<(), Error> {
        let mut process = self.start(Some(crash), 4)?;
        let crash_plan = process.crash_plan.clone();
        tokio::select! {
            biased;
            () = crash_plan.sealed() => Ok(()),
            ended = process.ended() => ended,
        }
    }

    #[doc(hidden)]
    pub fn start(&self, crash: Option<Crash>, concurrency: usize) -> Result<Process, Error> {
        self.start_as(crash, self.start_of(concurrency, LEASE))
    }

    /// Starts a process that takes messages ahead of those that it runs.
    pub(super) fn start_ahead(&self, concurrency: usize) -> Result<Process, Error> {
        self.start_as(None, Start { ahead: true, ..self.start_of(concurrency, LEASE) })
    }

    fn start_as(&self, crash: Option<Crash>, start: Start) -> Result<Process, Error> {
        let launch = |crash_plan, shutdown| (self.launch)(start, crash_plan, shutdown);
        let crash_plan = CrashPlan::new(crash, self.trace.as_ref().map(Trace::process));
        Process::start(crash_plan, launch).map_err(no_runtime)
    }

    /// Starts a process that dies at this point, or never if `None`.
    pub(super) fn start_thread(&self, point: Option<Point>) -> Result<ProcessThread, Error> {
        let start = self.start_of(1, if point.is_some() { SHORT_LEASE } else { LEASE });
        let launch = |crash_plan, shutdown| (self.launch)(start, crash_plan, shutdown);
        ProcessThread::start(CrashPlan::before_poll(point, self.subject.clone()), launch).map_err(no_runtime)
    }

    fn start_of(&self, concurrency: usize, lease: Duration) -> Start {
        Start { broker: self.broker.clone(), watched: self.watched.clone(), concurrency, ahead: false, lease }
    }

    #[doc(hidden)]
    pub fn publish(&self, message: &Publication) {
        self.broker.publish(QUEUE, message.clone());
    }

    /// Waits until the queue is empty, no message in the inbox is scheduled, and none waits for a relay of the trial.
    pub(crate) async fn done(&self) -> Result<(), Error> {
        let mut changed = self.watched.changed.subscribe();
        loop {
            self.broker.idle().await;
            changed.mark_unchanged();
            let scheduled = Filter::new().scheduled();
            let is_scheduled = !self.operator.list(&scheduled, Page::new(1)).await?.rows.is_empty();
            if !is_scheduled && self.is_relayed().await? {
                return Ok(());
            }
            // A scheduled row runs, and its outcome is observed. A relay has no outcomes. The sender lives in `self`.
            let wait = Duration::from_millis(if is_scheduled { 200 } else { 5 });
            let _ = tokio::time::timeout(wait, changed.changed()).await;
        }
    }

    /// Returns whether no message waits for a relay of the trial.
    async fn is_relayed(&self) -> Result<bool, Error> {
        if self.subject.sink.is_none() {
            return Ok(true);
        }
        let outbox = self.store.register_outbox(CONSUMER).await?;
        let stats = self.store.outbox_stats(outbox, 1).await;
        let stats = stats.map_err(|error| Error::database("could not read the outbox", error))?;
        Ok(stats.waiting == 0)
    }
}

fn no_runtime(error: std::io::Error) -> Error {
    Error::Config(format!("a runtime for a worker could not be made: {error}"))
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

    pub(super) fn push(&self, outcome: Outcome) {
        self.outcomes().push(outcome);
        self.changed.send_replace(());
    }
}
