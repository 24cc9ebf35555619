//! A store that stops at a point, and a handler that stops at its first await.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use idem_core::BoxError;

use crate::tapped_store::StoreTap;
use crate::trace::ProcessTrace;

use super::crash::Crash;
use super::fate::Fate;
use super::polls::Call;

/// The store waits forever at the point at which the process ends.
impl StoreTap for Fate {
    fn reach(&self, point: Crash) -> impl Future<Output = ()> + Send {
        Fate::reach(self, point)
    }

    fn trace(&self) -> Option<&ProcessTrace> {
        self.traced()
    }

    async fn handle<R>(&self, run: R) -> Result<(), BoxError>
    where
        R: Future<Output = Result<(), BoxError>> + Send,
    {
        if self.is_at(Crash::InHandler) { cut_off(self, run).await } else { self.polled(Call::Handler, run).await }
    }

    fn statement<R>(&self, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        self.polled(Call::Other, work)
    }

    fn commit<R>(&self, work: impl Future<Output = R> + Send) -> impl Future<Output = R> + Send {
        self.polled(Call::Commit, work)
    }
}

/// Polls once, then reaches `InHandler`, where a process that ends there waits forever.
async fn cut_off(fate: &Fate, run: impl Future<Output = Result<(), BoxError>> + Send) -> Result<(), BoxError> {
    let mut run = pin!(run);
    let ended = poll_fn(|cx| Poll::Ready(run.as_mut().poll(cx))).await;
    fate.reach(Crash::InHandler).await;
    match ended {
        Poll::Ready(result) => result,
        Poll::Pending => run.await,
    }
}
