//! Extension of the leases of deliveries while they are held. [`LeasedAcker`](super::LeasedAcker) knows when it is due.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, join_all, select};
use tokio::task::coop::unconstrained;
use tokio::time::Instant;

use crate::{Acker, BoxError};

/// How often a lease is looked at while it lasts: an extension that is due after a third of it is then made before a
/// half.
const LOOKS: u32 = 6;

/// Runs the work, which may be a handler, and extends the leases of its deliveries, at once where that is due, until the
/// work ends.
pub(crate) async fn extended<A: Acker, T>(ackers: &mut [&mut A], work: impl Future<Output = T>) -> T {
    let Some(lease) = ackers.iter().filter_map(|acker| acker.lease()).min() else { return work.await };
    let extend = async {
        loop {
            join_all(ackers.iter_mut().map(|acker| acker.extend())).await.into_iter().for_each(warn_of);
            tokio::time::sleep(lease / LOOKS).await;
        }
    };
    // tokio limits how much a task does in one turn. Work that never waits uses that up in each turn, and the timer of
    // the extension, which comes behind it, would not even be looked at.
    match select(pin!(work), pin!(unconstrained(extend))).await {
        Either::Left((done, _)) => done,
        Either::Right((never, _)) => never,
    }
}

/// Extends a delivery's lease whenever that is due. Checks at least every `look` whether the delivery is still live,
/// and returns once it is lost.
pub(crate) async fn kept<A: Acker>(acker: &mut A, look: Duration) {
    let beat = acker.lease().map(|lease| lease / LOOKS);
    let keep = async {
        loop {
            warn_of(acker.extend().await);
            tokio::time::sleep(beat.map_or(look, |beat| beat.min(look))).await;
            if !acker.is_live() {
                return;
            }
        }
    };
    // The preparation of a codec runs in the same task: see `extended`.
    unconstrained(keep).await;
}

fn warn_of(extended: Result<(), BoxError>) {
    if let Err(error) = extended {
        tracing::debug!(error, "the lease of a delivery was not extended");
    }
}

/// Sleeps until `time`, or forever if `None`.
pub(crate) async fn at(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => std::future::pending().await,
    }
}
