//! The conformance suites: what every source and every store has to keep, one test per sentence.
//!
//! A suite is a set of async functions over a small `World` that the implementation provides, and a macro that stamps
//! one `#[tokio::test]` per function. Each test makes a world of its own. A case fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

pub mod pipeline;
pub mod source;
pub mod store;

use std::time::Duration;

/// How long a case may take. Generous: it is there so that a case which waits for what never comes fails by itself.
const LIMIT: Duration = Duration::from_secs(120);

/// Runs a case in a world, unless there is none: then whatever makes worlds has said why.
///
/// # Panics
/// The case did, or it took longer than two minutes.
pub async fn run<W>(world: Option<W>, case: impl AsyncFnOnce(W)) {
    let Some(world) = world else { return };
    tokio::time::timeout(LIMIT, case(world)).await.expect("the case waits for something that does not come");
}

/// The address of a server that a suite needs, from the environment.
///
/// `None`, and a line that says so, where the variable is not set.
///
/// # Panics
/// It is not set although `CI` is: continuous integration skips nothing.
pub fn server(variable: &str) -> Option<String> {
    match std::env::var(variable) {
        Ok(address) if !address.is_empty() => Some(address),
        _ if std::env::var_os("CI").is_some() => panic!("{variable} is not set, and CI skips nothing"),
        _ => {
            println!("skipped: {variable} is not set, run cargo xtask test");
            None
        }
    }
}

/// What is expected at once.
async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("nothing came within 20 seconds")
}

/// Stamps one test per case.
#[doc(hidden)]
#[macro_export]
macro_rules! __suite {
    ($world:ty, $suite:ident: $($case:ident)*) => {$(
        #[::tokio::test(flavor = "multi_thread")]
        async fn $case() {
            let world = <$world as $crate::conformance::$suite::World>::make().await;
            $crate::conformance::run(world, $crate::conformance::$suite::$case).await;
        }
    )*};
}
