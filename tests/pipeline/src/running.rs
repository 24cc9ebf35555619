//! A running worker, and the ways in which it ends.

use idem_core::Error;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use idem_conformance::soon;
use idem_test::Queue;

/// A running worker.
pub(super) struct Running {
    pub(super) shutdown: oneshot::Sender<()>,
    pub(super) worker: JoinHandle<Result<(), Error>>,
}

impl Running {
    /// Starts its shutdown.
    pub(super) fn shut_down(self) -> JoinHandle<Result<(), Error>> {
        let _ = self.shutdown.send(());
        self.worker
    }

    /// Waits until it ends by itself.
    pub(super) async fn ended(self) -> Result<(), Error> {
        self.worker.await.unwrap()
    }

    /// Drains it and waits until it ends.
    pub(super) async fn stop(self) {
        soon(self.shut_down()).await.unwrap().unwrap();
    }

    /// Waits until nothing is left in its queue, and stops it.
    pub(super) async fn stop_once_idle(self, queue: &Queue) {
        soon(queue.idle()).await;
        self.stop().await;
    }

    /// Ends it as a crash does: every task vanishes where it is.
    pub(super) async fn crash(self) {
        self.worker.abort();
        let _ = soon(self.worker).await;
    }

    /// Returns the error with which it refuses to start.
    pub(super) async fn refused(self) -> String {
        soon(self.worker).await.unwrap().unwrap_err().to_string()
    }
}
