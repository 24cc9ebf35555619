//! Keeping what waits.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::acker::extend;
use crate::connection::Link;
use crate::lease::Leases;

/// Extends the leases of what somebody holds, at a third of them, for as long as the source lives, and makes room for what
/// nobody holds any more.
///
/// A worker task extends only what it works on. The lease of a delivery that waits for one, in the buffer or in the
/// worker's channel, runs anyway: five deliveries of 0.4 seconds each, one after another with an ack wait of a
/// second, came to two or three duplicates.
pub(crate) async fn keep(link: Link, leases: Arc<Leases>, wait: Duration) -> Infallible {
    loop {
        // Twice as often as needed, since a lease becomes due between two looks.
        sleep(wait / 6).await;
        leases.sweep();
        let due = leases.due();
        for kept in join_all(due.iter().map(|lease| extend(&link, lease))).await {
            if let Err(error) = kept {
                tracing::debug!(error, "the lease of a delivery was not extended");
            }
        }
    }
}
