//! Waiting with a limit.

use std::time::{Duration, Instant};

/// Nothing takes longer, even on a busy machine.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Waits for the future, and panics with `what` if it takes too long.
pub async fn within<T>(what: &str, it: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, it).await.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

/// Repeats the query until it returns `true`.
pub async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let start = Instant::now();
    while !ask().await {
        assert!(start.elapsed() < LONG, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
