//! A process on one thread, which dies in an instant.

use std::io;

use idem_core::Error;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use super::crash_plan::CrashPlan;
use super::process::Running;

/// A worker in a current-thread runtime on a thread of its own. Once its crash plan is sealed, no other task is polled: the
/// runtime is dropped, and each connection with it. Dropping this kills it, too.
pub(super) struct ProcessThread {
    pub(super) crash_plan: CrashPlan,
    shutdown: Option<oneshot::Sender<()>>,
    end: oneshot::Receiver<End>,
}

/// How a process ended.
pub(super) enum End {
    /// Its point was reached, and all of it is gone.
    Died,
    /// The worker returned.
    Returned(Result<(), Error>),
}

impl ProcessThread {
    /// Starts a worker, which runs until it is shut down or dies.
    pub(super) fn start(
        crash_plan: CrashPlan,
        worker: impl FnOnce(CrashPlan, oneshot::Receiver<()>) -> Running,
    ) -> io::Result<Self> {
        // With an interval of one task, the main future is polled directly after the task that has woken it.
        let runtime = Builder::new_current_thread().enable_all().event_interval(1).build()?;
        let (shutdown, when) = oneshot::channel();
        let (mut ends, end) = oneshot::channel();
        let (worker, of_thread) = (worker(crash_plan.clone(), when), crash_plan.clone());
        std::thread::Builder::new().name("idem-trial".to_owned()).spawn(move || {
            let crash_plan = of_thread;
            crash_plan.enter_thread();
            let ended = runtime.block_on(async {
                tokio::select! {
                    biased;
                    () = crash_plan.sealed() => End::Died,
                    () = ends.closed() => End::Died,
                    returned = worker => End::Returned(returned),
                }
            });
            // Drops every task here and now, and waits for no blocking one.
            runtime.shutdown_background();
            let _ = ends.send(ended);
        })?;
        Ok(Self { crash_plan, shutdown: Some(shutdown), end })
    }

    /// Waits until the process is gone. It returns by itself only after an error at its start.
    pub(super) async fn end(&mut self) -> Result<End, Error> {
        (&mut self.end).await.map_err(|_| Error::Config("the worker panicked".to_owned()))
    }

    /// Drains the worker and waits until the process is gone.
    pub(super) async fn stop(&mut self) -> Result<End, Error> {
        if let Some(shutdown) = self.shutdown.take() {
            let _ = shutdown.send(());
        }
        self.end().await
    }
}
