//! Waiting with an end.

use std::time::{Duration, Instant};

/// Nothing takes longer, also on a machine that is busy with other things.
pub(crate) const LONG: Duration = Duration::from_secs(60);

/// Waits for it, and says what was waited for if it does not come.
pub async fn within<T>(what: &str, it: impl Future<Output = T>) -> T {
    tokio::time::timeout(LONG, it).await.unwrap_or_else(|_| panic!("waited too long: {what}"))
}

/// Asks until the answer is yes.
pub async fn until<F: Future<Output = bool>>(what: &str, mut ask: impl FnMut() -> F) {
    let start = Instant::now();
    while !ask().await {
        assert!(start.elapsed() < LONG, "waited too long: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
