//! A tapped store, and its tap.

use std::time::{Duration, Instant};

use idem_core::store::{Identity, OutboxId, Row, StoreError};
use idem_core::{BoxError, HasConnection, Store};
use uuid::Uuid;

use crate::harness::Crash;
use crate::trace::{ProcessTrace, Step, Subject};

use super::doing::Doing;
use super::fetching::Fetches;
use super::relay::RelayLeases;

/// The calls that [`TappedStore`] changes. By default it changes nothing.
pub trait StoreTap: Clone + Send + Sync + 'static {
    /// Runs before `ping`, `seen`, `poll_due`, `rows_by_token`, `stats`, `fetch_calls` (a take for calls; for one without a bound
    /// then as `fetch_all_calls`), `rollback` and `txn_outcome`, and before each `claim`, `existing_claim`, `known`, `insert`,
    /// `reopen`, `start`, `record_result`, `record_call`, `date_call` and `refund_start` with the key of the message. Also before
    /// the answers `row_is_fetched`, `fetched_calls`, `call_is_recorded`, `call_is_dated`, `start_is_refunded` and `committed`,
    /// which may be lost.
    fn before(&self, _method: &'static str, _key: &[u8]) -> impl Future<Output = Result<(), StoreError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Changes when a fetch of calls that has fetched some, or a statement that dates a call, says that it had its connection.
    fn since(&self, since: Instant) -> Instant {
        since
    }

    /// Runs before each search for due rows, with how far back it looks; `None`: at everything.
    fn looks_back(&self, _search: &'static str, _since: Option<Duration>) {}

    /// Runs at each point at which a process can crash.
    fn reach(&self, _point: Crash) -> impl Future<Output = ()> + Send {
        std::future::ready(())
    }

    /// Runs a call of the store that is about a message, except a commit.
    fn statement<R>(&self, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        work
    }

    /// Runs a commit.
    fn commit<R>(&self, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        work
    }

    /// Runs `fetch_calls`, `record_call` or `delete_published`.
    fn watched<R>(
        &self,
        _method: &'static str,
        work: impl Future<Output = R> + Send,
    ) -> impl Future<Output = R> + Send {
        work
    }

    /// Returns whether a message may be fetched for its call now.
    fn may_fetch_calls(&self) -> bool {
        true
    }

    /// Changes the lease for which a message is fetched for its call.
    fn lease_of_call(&self, lease: Duration) -> Duration {
        lease
    }

    /// Changes a row that was fetched for its call, for which the worker had asked for this lease.
    fn fetched_for_call(&self, _row: &mut Row, _lease: Duration) {}

    /// Runs when a call of this process has ended: its result was to be recorded, or its row is lost.
    fn call_has_ended(&self) {}

    /// Runs before a relay takes or renews the lease of its outbox under this token.
    fn leases_outbox(&self, _outbox: OutboxId, _token: Uuid) {}

    /// The trace into which the steps of this store are written, if there is one.
    fn trace(&self) -> Option<&ProcessTrace> {
        None
    }

    /// Runs the handler of this name.
    fn handle<R>(&self, _handler: &'static str, run: R) -> impl Future<Output = Result<(), BoxError>> + Send
    where
        R: Future<Output = Result<(), BoxError>> + Send,
    {
        run
    }

    /// Runs an external call. It has no store and no transaction, and so not this tap.
    fn call<R>(work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        work
    }
}

/// A store that forwards all calls to the wrapped store through its tap. Its handlers are [`Over`](super::Over) those
/// of that store.
#[derive(Debug, Clone)]
pub struct TappedStore<S, T> {
    pub(super) within: S,
    pub(super) tap: T,
    pub(super) fetches: Fetches,
    pub(super) relays: RelayLeases,
}

impl<S, T> TappedStore<S, T> {
    /// Wraps a store.
    pub fn new(within: S, tap: T) -> Self {
        Self { within, tap, fetches: Fetches::default(), relays: RelayLeases::default() }
    }
}

impl<S, T: StoreTap> TappedStore<S, T> {
    /// Wraps a transaction that has just begun.
    pub(super) fn txn<X>(&self, within: X) -> TappedTxn<X, T> {
        TappedTxn { within, tap: self.tap.clone(), doing: Doing::new(self.tap.trace()) }
    }

    /// Writes that a step about this message begins, if there is a trace.
    pub(super) async fn begins(&self, step: &'static str, identity: &Identity, values: String) -> Option<Step> {
        let (process, of) = (self.tap.trace()?, Subject::of(identity)?);
        process.alive().await;
        Some(process.begin(step, of, values))
    }

    /// Returns while the process of the trace is alive.
    pub(super) async fn alive(&self) {
        if let Some(process) = self.tap.trace() {
            process.alive().await;
        }
    }

    /// Writes that a step begins whose keys only its answer tells.
    pub(super) async fn begins_any(&self, step: &'static str) -> Option<Step> {
        self.begins_with(step, String::new()).await
    }

    /// The same with values.
    pub(super) async fn begins_with(&self, step: &'static str, values: String) -> Option<Step> {
        let process = self.tap.trace()?;
        process.alive().await;
        Some(process.begin_any(step, values))
    }
}

/// A transaction of the wrapped store, with the tap.
#[derive(Debug)]
pub struct TappedTxn<X, T> {
    pub(super) within: X,
    pub(super) tap: T,
    pub(super) doing: Doing,
}

/// Returns the transaction itself, because [`Over`](super::Over) needs the tap that comes with it.
impl<S: Store, T: StoreTap> HasConnection<TappedTxn<S::Txn, T>> for TappedStore<S, T> {
    fn connection(txn: &mut TappedTxn<S::Txn, T>) -> &mut TappedTxn<S::Txn, T> {
        txn
    }
}
