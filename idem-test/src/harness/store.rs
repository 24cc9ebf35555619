//! A store that stops at a point, and a handler that stops at its first await.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use idem_core::BoxError;
use idem_core::store::{OutboxId, Row};
use uuid::Uuid;

use crate::tapped_store::StoreTap;
use crate::trace::ProcessTrace;

use super::crash::Crash;
use super::crash_plan::CrashPlan;
use super::leases::Leases;
use super::polls::Call;

/// The store waits forever at the point at which the process ends.
impl StoreTap for CrashPlan {
    fn reach(&self, point: Crash) -> impl Future<Output = ()> + Send {
        CrashPlan::reach(self, point)
    }

    fn trace(&self) -> Option<&ProcessTrace> {
        self.traced()
    }

    async fn handle<R>(&self, handler: &'static str, run: R) -> Result<(), BoxError>
    where
        R: Future<Output = Result<(), BoxError>> + Send,
    {
        if self.is_at(Crash::InHandler) {
            return cut_off(self, run).await;
        }
        let is_local = self.leases().is_some_and(|leases| leases.subject().is_local(handler));
        self.polled(if is_local { Call::LocalHandler } else { Call::Handler }, run).await
    }

    async fn call<R>(work: impl Future<Output = R> + Send) -> R {
        match Self::of_thread() {
            Some(crash_plan) => crash_plan.polled(Call::External, work).await,
            None => work.await,
        }
    }

    fn statement<R>(&self, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        self.polled(Call::Other, work)
    }

    fn commit<R>(&self, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        self.polled(Call::Commit, work)
    }

    fn watched<R>(&self, method: &'static str, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        let call = match method {
            "fetch_calls" => Call::Fetch,
            "record_call" => Call::Record,
            "delete_published" => Call::Delete,
            _ => Call::Other,
        };
        self.polled(call, work)
    }

    fn may_fetch_calls(&self) -> bool {
        self.leases().is_none_or(Leases::may_call)
    }

    fn lease_of_call(&self, lease: Duration) -> Duration {
        self.leases().map_or(lease, |_| Leases::of_call())
    }

    fn fetched_for_call(&self, row: &mut Row, lease: Duration) {
        if let Some(leases) = self.leases() {
            leases.fetched(row, lease);
            self.message_is_fetched();
        }
    }

    fn call_has_ended(&self) {
        if let Some(leases) = self.leases() {
            leases.call_has_ended();
        }
    }

    fn leases_outbox(&self, outbox: OutboxId, token: Uuid) {
        if let Some(leases) = self.leases() {
            leases.holds(outbox, token);
        }
    }
}

/// Polls once, then reaches `InHandler`, where a process that ends there waits forever.
async fn cut_off(
    crash_plan: &CrashPlan,
    run: impl Future<Output = Result<(), BoxError>> + Send,
) -> Result<(), BoxError> {
    let mut run = pin!(run);
    let ended = poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await;
    crash_plan.reach(Crash::InHandler).await;
    match ended {
        Poll::Ready(result) => result,
        Poll::Pending => run.await,
    }
}
