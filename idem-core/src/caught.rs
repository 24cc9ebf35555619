//! Catches panics of user code: codecs, callbacks, calls. `run/transaction.rs` catches those of handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};

use futures_util::FutureExt;

use crate::panic_text::panic_text;

/// Does work of user code. Returns a panic in it as its text; a panic while it is dropped, also before its end, is only
/// logged.
pub(crate) async fn caught<T>(what: &'static str, work: impl Future<Output = T>) -> Result<T, String> {
    let mut work = scopeguard::guard(Box::pin(work), move |work| dropped(what, work));
    AssertUnwindSafe(&mut *work).catch_unwind().await.map_err(|panic| panic_text(panic.as_ref()))
}

/// Drops a value of user code. A panic of its `Drop` is only logged.
pub(crate) fn dropped<T>(what: &'static str, value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        tracing::warn!(panic = panic_text(panic.as_ref()), "{what} panicked as it was dropped");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped");
        }
    }

    #[tokio::test]
    async fn a_panic_is_returned_as_its_text() {
        let caught = caught::<()>("a test", async { panic!("no such table") }).await;
        assert_eq!(caught, Err("no such table".to_owned()));
    }

    #[tokio::test]
    async fn a_panic_as_it_is_dropped_harms_nobody() {
        let mut work = Box::pin(caught::<()>("a test", async {
            let _bomb = Bomb;
            std::future::pending().await
        }));
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        dropped("a value", Bomb);
    }
}
