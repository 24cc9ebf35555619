//! The log of a unit test.

use std::sync::LazyLock;

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Subscriber};

/// While a process has had one subscriber, an event that is reached for the first time asks the subscriber of its own
/// thread alone, and the answer holds for all threads (`Rebuilder::JustOne` in tracing-core 0.1.36, `callsite.rs`).
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::new())));

/// Does the work while this subscriber sees its events, whatever the tests in other threads reached before.
pub(crate) fn with_subscriber<T>(subscriber: impl Subscriber + Send + Sync + 'static, work: impl FnOnce() -> T) -> T {
    LazyLock::force(&OTHERS);
    tracing::subscriber::with_default(subscriber, work)
}
