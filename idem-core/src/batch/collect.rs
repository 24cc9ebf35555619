//! Taking together what is there.

use std::time::Duration;

use async_channel::Receiver;
use tokio::time::{Instant, timeout_at};

/// Waits for one, and takes what else is there, up to `limit`; with `linger`, also what comes within that time.
/// `None` when the channel is closed and empty. Not cancel safe: what was taken is lost with the future.
pub(crate) async fn collect<T>(from: &Receiver<T>, limit: usize, linger: Duration) -> Option<Vec<T>> {
    let mut taken = vec![from.recv().await.ok()?];
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
    Some(taken)
}
