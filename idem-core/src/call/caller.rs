//! The loop that fetches rows whose calls are due.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use crate::Store;
use crate::inbox::{PollWindow, free};
use crate::runtime::Pipeline;
use crate::store::{FetchLimit, FetchedRows, RowKind, StoreError};

/// Makes the calls of a worker until it drains, and then waits for those that were begun. Any number of processes may do so:
/// each row is fetched by one of them at a time.
pub(crate) async fn run<S: Store>(pipeline: Arc<Pipeline<S>>) {
    let callers = pipeline.routes.callers();
    if callers.is_empty() {
        return;
    }
    let slots = Arc::new(Semaphore::new(pipeline.settings.call_concurrency));
    let (mut window, mut running) = (PollWindow::new(pipeline.settings.poll), JoinSet::new());
    while !pipeline.draining.is_cancelled() {
        // Starts as many calls as can begin at once, and returns whether at least that many were due.
        let round = async {
            // Not while an orphaned row has the process to itself.
            let ready = async {
                let slots = free(&slots).await;
                drop(pipeline.isolation_lock.direct().await);
                slots
            };
            let Some(slots) = pipeline.draining.run_until_cancelled(ready).await else { return Ok(false) };
            if pipeline.is_outbox_full() {
                return Ok(false);
            }
            let began = Instant::now();
            let limit = FetchLimit { since: window.since(began), ..FetchLimit::rows(RowKind::Calling, slots.len()) };
            let FetchedRows { rows, since: fetched } = pipeline.fetched(&callers, limit).await?;
            window.found(began, &rows);
            let all = rows.len() == slots.len();
            for (row, slot) in rows.into_iter().zip(slots) {
                let pipeline = pipeline.clone();
                running.spawn(async move {
                    pipeline.defect.task("calls", pipeline.call_row(&row, fetched)).await;
                    drop(slot);
                });
            }
            Ok::<_, StoreError>(all)
        };
        let round = round.await;
        pipeline.rest_after(round, &pipeline.calls_due, &mut running).await;
    }
    while running.join_next().await.is_some() {}
}
