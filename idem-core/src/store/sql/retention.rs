//! A retention that does not apply, since the stored one is greater.

use std::time::Duration;

/// Warns if the greatest retention that is stored for the handlers of a consumer is greater than the one that the program
/// has `set`. `lower` returns the statement that stores this many milliseconds.
pub(crate) fn tell_of_retention(
    consumer: &str,
    set: Duration,
    stored: Option<Duration>,
    lower: impl FnOnce(u128) -> String,
) {
    // Stores round it.
    let Some(stored) = stored.filter(|stored| *stored > set.saturating_add(Duration::from_millis(1))) else { return };
    tracing::warn!(
        consumer,
        ?stored,
        ?set,
        "claims are kept for the stored retention, which is greater than that of `.retention(..)`, since an older worker may \
         rely on it: to lower it, start all workers with the lower one, and then run {}",
        lower(set.as_millis())
    );
}
