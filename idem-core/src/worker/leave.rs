//! When a worker disconnects from its broker because it cannot handle what it holds.

use std::time::Duration;

use tokio::time::{Instant, timeout, timeout_at};

use crate::Store;
use crate::runtime::Pipeline;

/// An outage that starts again within this time is the same outage: held deliveries are retried every two seconds.
const SAME: Duration = Duration::from_secs(10);

/// Waits until the database has been unavailable, consumption paused or the outbox full, for a quarter of the time that
/// the broker lets a delivery stay unsettled. Returns the reason. Held deliveries should then be given back: the broker
/// would take them back again and again, or other workers, which can handle them, would get nothing of them. Never
/// completes if the broker has no such limit. Cancel safe.
pub(super) async fn too_long<S: Store>(pipeline: &Pipeline<S>, limit: Option<Duration>) -> &'static str {
    let (outage, health) = (&pipeline.outage, &pipeline.health);
    let Some(long) = limit.map(|limit| limit / 4) else { return std::future::pending().await };
    tokio::select! {
        () = lasts(long, || outage.began(), || outage.over()) => "the database has been away for long",
        () = lasts(long, || health.pauses(), || health.resumed()) => "consumption has been paused for long",
        () = lasts(long, || pipeline.outbox_full(true), || pipeline.outbox_full(false)) => "the outbox has been full for long",
    }
}

/// Waits until the worker can take deliveries again. Cancel safe.
pub(super) async fn over<S: Store>(pipeline: &Pipeline<S>) {
    pipeline.outage.over().await;
    pipeline.health.resumed().await;
    pipeline.outbox_full(false).await;
}

/// Waits until an outage has lasted for `long`.
async fn lasts<B: Future, O: Future>(long: Duration, began: impl Fn() -> B, over: impl Fn() -> O) {
    loop {
        began().await;
        let end = Instant::now() + long;
        loop {
            if timeout_at(end, over()).await.is_err() {
                return;
            }
            if timeout(long.min(SAME), began()).await.is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio::time::sleep;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns the time until `lasts` reports an outage of one minute. Each change waits so many seconds and then sets
    /// whether the database is up.
    async fn left_after(changes: &[(u64, bool)]) -> Duration {
        let (up, began) = (watch::Sender::new(true), Instant::now());
        let until = async |now: bool| drop(up.subscribe().wait_for(|up| *up == now).await);
        let changes = async {
            for (seconds, now) in changes {
                sleep(Duration::from_secs(*seconds)).await;
                up.send_replace(*now);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = lasts(LONG, || until(false), || until(true)) => began.elapsed(),
            () = changes => Duration::ZERO,
            () = sleep(Duration::from_secs(10_000)) => Duration::MAX,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_that_time_is_too_long() {
        assert_eq!(left_after(&[]).await, Duration::MAX);
        assert_eq!(left_after(&[(100, false)]).await.as_secs(), 160);
        assert_eq!(left_after(&[(100, false), (59, true)]).await, Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_begins_again_at_once_is_the_same() {
        assert_eq!(left_after(&[(0, false), (30, true), (5, false), (10, true), (1, false)]).await.as_secs(), 60);
        assert_eq!(left_after(&[(0, false), (30, true), (11, false)]).await.as_secs(), 101);
    }
}
