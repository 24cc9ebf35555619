//! A codec's preparation, whose failure affects only its message.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::task::{Context, Poll};

use super::PrepareError;
use crate::panic_text::panic_text;

type Work<'a> = Pin<Box<dyn Future<Output = Result<(), PrepareError>> + Send + 'a>>;

/// The future of a preparation. A panic in it is the fault of its message; a panic while it is
/// dropped is only logged.
pub(crate) struct Preparing<'a>(Option<Work<'a>>);

impl<'a> Preparing<'a> {
    pub(crate) fn new(work: impl Future<Output = Result<(), PrepareError>> + Send + 'a) -> Self {
        Self(Some(Box::pin(work)))
    }
}

impl Future for Preparing<'_> {
    type Output = Result<(), PrepareError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(work) = &mut self.0 else { return Poll::Pending };
        catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))).unwrap_or_else(|panic| {
            let text = panic_text(panic.as_ref());
            Poll::Ready(Err(PrepareError::undecodable(format!("the preparation of the codec panicked: {text}"))))
        })
    }
}

impl Drop for Preparing<'_> {
    fn drop(&mut self) {
        let work = self.0.take();
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(work))) {
            tracing::warn!(panic = panic_text(panic.as_ref()), "the preparation of a codec panicked as it was dropped");
        }
    }
}

impl fmt::Debug for Preparing<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Preparing")
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
    async fn a_panic_is_the_fault_of_the_message() {
        let prepared = Preparing::new(async { panic!("no such table") }).await;
        let Err(PrepareError::Undecodable(error)) = prepared else { panic!("{prepared:?}") };
        assert_eq!(error.to_string(), "the preparation of the codec panicked: no such table");
    }

    #[tokio::test]
    async fn a_panic_as_it_is_dropped_harms_nobody() {
        let mut preparing = Preparing::new(async {
            let _bomb = Bomb;
            std::future::pending().await
        });
        assert!(futures_util::poll!(&mut preparing).is_pending());
        drop(preparing);
    }
}
