//! Extends the leases of deliveries that wait.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::sleep;

use crate::acker::extend;
use crate::leases::Leases;
use crate::link::Link;

/// Extends the leases of held deliveries after a third of their duration, and forgets dropped ones when their leases
/// expire, which frees their space. Runs as long as the source lives.
///
/// A worker task extends only the delivery that it processes. The lease of a delivery that waits in the buffer or in
/// the worker's channel runs meanwhile. Without this, five deliveries of 0.4 seconds each, one after another with an
/// ack wait of one second, led to two or three duplicates.
pub(crate) async fn keep(link: Link, leases: Arc<Leases>, wait: Duration) {
    loop {
        // Twice as often as needed, because a lease becomes due between two checks.
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
