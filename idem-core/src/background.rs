//! The background tasks of a source, whose panics end the worker.

use std::convert::Infallible;
use std::panic::resume_unwind;

use tokio::task::JoinSet;

/// Tasks that a source runs concurrently with [`next`](crate::Source::next), to extend leases or to fetch messages, for
/// example. Dropping this value ends them.
///
/// If one of them panicked and nobody noticed, the source would look healthy and do a part of its work only. A source
/// therefore waits for [`panicked`](Self::panicked) in `next`: the worker then ends with
/// [`Error::Panicked`](crate::Error::Panicked), and the broker delivers again.
///
/// ```
/// # use idem_core::{BackgroundTasks, BoxError};
/// # struct Connection { arrivals: tokio::sync::mpsc::Receiver<String>, tasks: BackgroundTasks }
/// # impl Connection {
/// async fn next(&mut self) -> Result<String, BoxError> {
///     tokio::select! {
///         never = self.tasks.panicked() => match never {},
///         message = self.arrivals.recv() => message.ok_or_else(|| "the connection is lost".into()),
///     }
/// }
/// # }
/// ```
#[derive(Debug, Default)]
pub struct BackgroundTasks(JoinSet<()>);

impl BackgroundTasks {
    /// Starts a task.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn spawn(&mut self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(work);
    }

    /// Waits until a task panics, and continues its panic in the caller. It never completes otherwise. Cancel safe.
    ///
    /// # Panics
    /// As described.
    pub async fn panicked(&mut self) -> Infallible {
        while let Some(ended) = self.0.join_next().await {
            if let Err(error) = ended
                && error.is_panic()
            {
                resume_unwind(error.into_panic());
            }
        }
        std::future::pending().await
    }

    /// Waits until all tasks have ended by themselves. Cancel safe.
    pub async fn ended(&mut self) {
        while self.0.join_next().await.is_some() {}
    }

    /// Ends all tasks, and waits until they are gone.
    pub async fn shutdown(&mut self) {
        self.0.shutdown().await;
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures_util::FutureExt;

    use super::*;

    #[tokio::test]
    async fn a_panic_in_a_task_continues_in_the_caller() {
        let mut tasks = BackgroundTasks::default();
        tasks.spawn(async {});
        tasks.spawn(async { panic!("the lease is negative") });
        let panic = AssertUnwindSafe(tasks.panicked()).catch_unwind().await.unwrap_err();
        assert_eq!(crate::panic_text::panic_text(panic.as_ref()), "the lease is negative");
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_that_end_or_do_not_exist_are_no_panic() {
        let mut tasks = BackgroundTasks::default();
        for _ in 0..2 {
            let panicked = tokio::time::timeout(std::time::Duration::from_secs(60), tasks.panicked()).await;
            assert!(panicked.is_err());
            tasks.spawn(async {});
        }
    }
}
