//! Takes all available items together.

use std::time::Duration;

use tokio::time::{Instant, timeout_at};

use crate::runtime::Queue;

/// Waits for one item, and takes all others that are available, up to `limit`; with `linger`, also those that arrive
/// within that time. Returns `false` if the queue is closed and empty. Cancel safe: items already taken stay in
/// `taken`.
pub(crate) async fn collect<T>(from: &Queue<T>, limit: usize, linger: Duration, taken: &mut Vec<T>) -> bool {
    let Some(first) = from.recv().await else { return false };
    taken.push(first);
    while taken.len() < limit
        && let Some(next) = from.try_recv()
    {
        taken.push(next);
    }
    if !linger.is_zero() {
        let until = Instant::now() + linger;
        while taken.len() < limit
            && let Ok(Some(next)) = timeout_at(until, from.recv()).await
        {
            taken.push(next);
        }
    }
    true
}
