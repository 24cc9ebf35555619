//! A process that can be killed: a worker on a separate runtime.

use std::pin::Pin;

use idem_core::Error;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

use crate::trace::ProcessTrace;

use super::crash_plan::CrashPlan;

pub(super) type Running = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

/// A worker on a separate runtime. Dropping it kills it: every task vanishes where it is, every connection is closed,
/// and nothing more is sent.
#[derive(Debug)]
pub struct Process {
    /// Where it dies.
    pub crash_plan: CrashPlan,
    runtime: Option<Runtime>,
    shutdown: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Result<(), Error>>,
}

impl Process {
    /// Starts a worker, which runs until it is shut down.
    pub(super) fn start(
        crash_plan: CrashPlan,
        worker: impl FnOnce(CrashPlan, oneshot::Receiver<()>) -> Running,
    ) -> std::io::Result<Self> {
        let traced = crash_plan.traced().cloned();
        let enter = move || traced.iter().for_each(ProcessTrace::enter);
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().on_thread_start(enter).build()?;
        let (shutdown, when) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let worker = worker(crash_plan.clone(), when);
        runtime.spawn(async move {
            // The receiver is gone if the process is being killed.
            let _ = end.send(worker.await);
        });
        Ok(Self { crash_plan, runtime: Some(runtime), shutdown: Some(shutdown), ended })
    }

    /// Waits until the worker ends by itself. Only an error at its start ends it.
    pub(crate) async fn ended(&mut self) -> Result<(), Error> {
        match (&mut self.ended).await {
            Ok(ended) => ended,
            Err(_) => Err(Error::Config("the worker panicked".to_owned())),
        }
    }

    /// Drains the worker and waits until it has ended.
    pub(crate) async fn stop(&mut self) -> Result<(), Error> {
        if let Some(shutdown) = self.shutdown.take() {
            let _ = shutdown.send(());
        }
        self.ended().await
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(process) = self.crash_plan.traced() {
            process.end();
        }
        // Dropping a runtime blocks and panics inside another one; and nothing waits for a killed process.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}
