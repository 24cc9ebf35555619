//! Extension of the leases of deliveries while they are held.

use std::convert::Infallible;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use tokio::time::Instant;

use crate::Acker;

/// Runs the work, and extends the delivery's lease every third of the lease until the work ends.
pub(crate) async fn extended<A: Acker, T>(acker: &mut A, work: impl Future<Output = T>) -> T {
    let Some(lease) = acker.lease() else { return work.await };
    let extend = pin!(extend(acker, lease / 3));
    match select(pin!(work), extend).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => match never {},
    }
}

/// Like [`extended`], for several deliveries, every third of the shortest lease.
pub(crate) async fn extended_all<A: Acker, T>(mut ackers: Vec<&mut A>, work: impl Future<Output = T>) -> T {
    let Some(lease) = ackers.iter().filter_map(|acker| acker.lease()).min() else { return work.await };
    let extend = pin!(async {
        loop {
            tokio::time::sleep(lease / 3).await;
            let extended = join_all(ackers.iter_mut().map(|acker| acker.extend())).await;
            if let Some(error) = extended.into_iter().find_map(Result::err) {
                tracing::debug!(error, "the lease of a delivery was not extended");
            }
        }
    });
    match select(pin!(work), extend).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => never,
    }
}

/// Extends a delivery's lease every third of the lease. Checks at least every `look` whether the delivery is still
/// live, and returns once it is lost.
pub(crate) async fn kept<A: Acker>(acker: &mut A, look: Duration) {
    let third = acker.lease().map(|lease| lease / 3);
    let mut extended = Instant::now();
    loop {
        tokio::time::sleep(third.map_or(look, |third| third.min(look))).await;
        if !acker.is_live() {
            return;
        }
        if third.is_some_and(|third| extended.elapsed() >= third) {
            extended = Instant::now();
            if let Err(error) = acker.extend().await {
                tracing::debug!(error, "the lease of a delivery was not extended");
            }
        }
    }
}

/// Sleeps until `time`, or forever if `None`.
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}

async fn extend<A: Acker>(acker: &mut A, every: Duration) -> Infallible {
    loop {
        tokio::time::sleep(every).await;
        if let Err(error) = acker.extend().await {
            tracing::debug!(error, "the lease of a delivery was not extended");
        }
    }
}
