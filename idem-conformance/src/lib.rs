//! The conformance suites: the contract of every source, every sink and every store, one test per rule.
//!
//! A suite is a set of async functions over a small `World` that the implementation provides, and a macro that
//! generates one `#[tokio::test]` per function. Each test creates a new world. A case fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod pipeline;
pub mod relay;
pub mod sink;
pub mod source;
pub mod store;

use std::time::Duration;

/// How long a case may take. It is generous: its purpose is that a case that waits for something that never comes
/// fails.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a case in a world. Does nothing if there is no world; its constructor has then printed why.
///
/// # Panics
/// Panics if the case panics, or if it takes longer than two minutes.
pub async fn run<W>(world: Option<W>, case: impl AsyncFnOnce(W)) {
    let Some(world) = world else { return };
    tokio::time::timeout(LIMIT, case(world)).await.expect("the case waits for something that does not come");
}

/// Awaits something that is expected at once.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("nothing came within 20 seconds")
}

/// Generates one test per case. Each test awaits `$world`, a future of its world.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($world:expr, $suite:ident: $($case:ident)*) => {$(
        #[::tokio::test(flavor = "multi_thread")]
        async fn $case() {
            $crate::run($world.await, $crate::$suite::$case).await;
        }
    )*};
}
