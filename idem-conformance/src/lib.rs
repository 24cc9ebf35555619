//! The conformance suites: the contract of every source, every sink and every store, one test per rule.
//!
//! A suite is a set of async functions over a small `World` that the implementation provides, and a macro that
//! generates one `#[tokio::test]` per function. Each test creates a new world. A case fails by panicking.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

mod captured;
pub mod certificates;
mod fake_aws;
pub mod key_value;
mod proxy;
pub mod relay;
mod server;
pub mod sink;
pub mod source;
pub mod store;

use std::time::Duration;

pub use captured::{Captured, captured, subscribe};
pub use fake_aws::{AwsRequest, fake_aws};
pub use proxy::{Proxy, authority};
pub use server::{example, server};

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

/// All texts of an error and its sources, by `Display` and `Debug`.
pub fn texts(error: &(dyn std::error::Error + 'static)) -> String {
    let chain = std::iter::successors(Some(error), |error| error.source());
    chain.map(|error| format!("{error}\n{error:?}\n")).collect()
}

/// Awaits something that is expected at once.
///
/// # Panics
/// Panics if it does not come within 20 seconds.
pub async fn soon<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), what).await.expect("nothing came within 20 seconds")
}

/// Waits until something holds that is expected at once, and looks every few milliseconds.
///
/// # Panics
/// Panics as [`soon`] does.
pub async fn until(mut holds: impl AsyncFnMut() -> bool) {
    soon(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
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

/// The types and the key of a handler whose messages have an `id`: `keyed_by_id!(Order, PgConnection);`. The third argument
/// is its input, if that is not the message itself.
#[macro_export]
macro_rules! keyed_by_id {
    ($message:ty, $connection:ty) => {
        $crate::keyed_by_id!($message, $connection, $message);
    };
    ($message:ty, $connection:ty, $input:ty) => {
        type Message = $message;
        type Input = $input;
        type Connection = $connection;

        fn key(message: &$message, _: &::idem_core::Delivery) -> Result<::idem_core::Key, ::idem_core::KeyError> {
            ::idem_core::Key::of(&message.id)
        }
    };
}

/// What a world does as a handler, with connections of sqlx: `handles_by_sqlx!(PgConnection);`.
#[macro_export]
macro_rules! handles_by_sqlx {
    ($connection:ty) => {
        async fn execute(tx: &mut $connection, sql: &str) -> Result<(), ::idem_core::BoxError> {
            ::sqlx::raw_sql(::sqlx::AssertSqlSafe(sql)).execute(tx).await?;
            Ok(())
        }

        async fn changes(tx: &mut $connection, sql: &str) -> Result<bool, ::idem_core::BoxError> {
            Ok(::sqlx::raw_sql(::sqlx::AssertSqlSafe(sql)).execute(tx).await?.rows_affected() > 0)
        }

        async fn nested(tx: &mut $connection, sql: &str, end: $crate::store::End) -> Result<(), ::idem_core::BoxError> {
            use ::sqlx::Connection as _;
            use $crate::store::End;

            if let End::Unbegun = end {
                // One that has begun by its first poll is an ordinary drop.
                while ::futures_util::FutureExt::now_or_never(tx.begin()).is_some() {}
                return Ok(());
            }
            let mut nested = tx.begin().await?;
            ::sqlx::raw_sql(::sqlx::AssertSqlSafe(sql)).execute(&mut *nested).await?;
            match end {
                End::Commit => nested.commit().await?,
                End::Rollback => nested.rollback().await?,
                End::Drop | End::Unbegun => drop(nested),
            }
            Ok(())
        }
    };
}
