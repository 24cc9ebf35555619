//! A wrapper that catches panics in a future of user code: codecs, callbacks, observers. `execute/handle.rs` catches those of handlers.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::panic_text::panic_text;

/// The future of user code. A panic in it is returned as its text; a panic while it is dropped is only logged.
pub(crate) struct Caught<'a, T> {
    work: Option<Pin<Box<dyn Future<Output = T> + Send + 'a>>>,
    /// The name of the work, for the log.
    what: &'static str,
}

impl<'a, T> Caught<'a, T> {
    pub(crate) fn new(what: &'static str, work: impl Future<Output = T> + Send + 'a) -> Self {
        Self { work: Some(Box::pin(work)), what }
    }
}

impl<T> Future for Caught<'_, T> {
    type Output = Result<T, String>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.work else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic_text(panic.as_ref()))),
        }
    }
}

impl<T> Drop for Caught<'_, T> {
    fn drop(&mut self) {
        let work = self.work.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "{} panicked as it was dropped", self.what);
        }
    }
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
        let caught = Caught::<()>::new("a test", async { panic!("no such table") }).await;
        assert_eq!(caught, Err("no such table".to_owned()));
    }

    #[tokio::test]
    async fn a_panic_as_it_is_dropped_harms_nobody() {
        let mut work = Caught::<()>::new("a test", async {
            let _bomb = Bomb;
            std::future::pending().await
        });
        assert!(futures_util::poll!(&mut work).is_pending());
        drop(work);
        dropped("a value", Bomb);
    }
}
