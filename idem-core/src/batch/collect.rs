//! Takes all available items together.

use std::time::Duration;

use async_channel::Receiver;
use tokio::time::{Instant, timeout_at};

/// Waits for one item, and takes all others that are available, up to `limit`; with `linger`, also those that arrive
/// within that time. Returns `false` if the queue is closed and empty. Cancel safe: items already taken stay in
/// `taken`.
pub(crate) async fn collect<T>(from: &Receiver<T>, limit: usize, linger: Duration, taken: &mut Vec<T>) -> bool {
    let Ok(first) = from.recv().await else { return false };
    taken.push(first);
    while taken.len() < limit
        && let Ok(next) = from.try_recv()
    {
        taken.push(next);
    }
    if !linger.is_zero() {
        let until = Instant::now() + linger;
        while taken.len() < limit
            && let Ok(Ok(next)) = timeout_at(until, from.recv()).await
        {
            taken.push(next);
        }
    }
    true
}
