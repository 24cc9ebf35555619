//! The loop that fetches due rows from the inbox and runs them.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::{join, join_all};
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::Store;
use crate::runtime::{Permit, Pipeline, Running, jittered};
use crate::store::{CRASHED_AT_ONCE, FetchFor, FetchLimit, FetchedRows, HandlerId, LookBack, Row, RowKind, StoreError};

use super::poll_window::PollWindow;

/// How long rows are fetched without a poll while all slots are in demand. An orphaned row stops new starts up to that much
/// later.
pub(super) const POLL_DUE: Duration = Duration::from_millis(100);

/// Runs the inbox of a worker until it drains, and then finishes what runs.
///
/// Any number of processes may do so: each row is fetched by one of them at a time.
pub(crate) async fn run<S: Store>(pipeline: Arc<Pipeline<S>>) {
    let handlers = pipeline.routes.ids();
    let mut runner = Runner {
        fetches: handlers.iter().map(|handler| FetchFor::new(*handler, pipeline.settings.lease)).collect(),
        handlers,
        window: PollWindow::new(pipeline.settings.poll),
        of_orphans: PollWindow::new(pipeline.settings.poll),
        slots: Arc::new(Semaphore::new(pipeline.settings.inbox_concurrency())),
        pipeline: pipeline.clone(),
        polled: None,
    };
    let served = pin!(async {
        runner.serve().await;
        pipeline.parked_rows.close();
    });
    tokio::select! {
        ((), ()) = join(served, pipeline.keep_parked_rows()) => {}
        never = pipeline.extend_leases() => match never {},
    }
}

/// Fetches the due rows of a worker's handlers, and runs them.
pub(super) struct Runner<S: Store> {
    pub(super) pipeline: Arc<Pipeline<S>>,
    pub(super) handlers: Vec<HandlerId>,
    fetches: Vec<FetchFor>,
    window: PollWindow,
    pub(super) of_orphans: PollWindow,
    slots: Arc<Semaphore>,
    /// The time of the last poll, as long as more rows are due than there are slots.
    polled: Option<Instant>,
}

impl<S: Store> Runner<S> {
    async fn serve(&mut self) {
        let mut tasks = JoinSet::new();
        while !self.pipeline.draining.is_cancelled() {
            let round = self.round(&mut tasks).await;
            if !self.pipeline.rest_after(round, &self.pipeline.scheduled, &mut tasks).await {
                self.polled = None;
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Makes crashed rows dead letters, runs orphaned rows, and starts as many ordinary rows as there is room for. Returns
    /// whether more may be due at once.
    async fn round(&mut self, tasks: &mut JoinSet<()>) -> Result<bool, StoreError> {
        if self.polled.is_some_and(|at| at.elapsed() < POLL_DUE) {
            return self.ordinary(tasks).await;
        }
        let store = &self.pipeline.store;
        let lease = self.pipeline.settings.lease;
        let own = self.pipeline.own_statements.lock().await;
        let began = Instant::now();
        let since = LookBack { ordinary: self.window.since(began), orphan: self.of_orphans.since(began) };
        let due = store.poll_due(&self.handlers, lease, since).await?;
        self.polled = Some(Instant::now());
        if !due.ordinary {
            self.window.found(began, &[]);
        }
        if !due.orphan && !due.alone {
            self.of_orphans.found(began, &[]);
        }
        let crashed = if due.crashed { store.dead_letter_crashed(&self.handlers, lease).await? } else { Vec::new() };
        drop(own);
        // If the process ends here, or the response was lost, these dead letters are never reported.
        for row in &crashed {
            self.pipeline.report_crashed(row).await;
        }
        // Due ordinary rows get their turn after the orphaned rows, so that many orphaned rows do not stop them for long.
        let others = due.ordinary && !self.pipeline.is_outbox_full();
        let mut orphans = due.orphan && self.orphans(RowKind::Orphan, others).await?;
        orphans |= due.alone && self.orphans(RowKind::Alone, others).await?;
        let ordinary = due.ordinary && self.ordinary(tasks).await?;
        Ok(orphans || ordinary || crashed.len() == CRASHED_AT_ONCE as usize)
    }

    /// Starts as many rows as can begin at once. Returns whether at least that many were due. While the outbox is full,
    /// no row starts, but orphaned rows and crashed rows do not wait for it.
    async fn ordinary(&mut self, tasks: &mut JoinSet<()>) -> Result<bool, StoreError> {
        if self.pipeline.is_outbox_full() {
            return Ok(false);
        }
        let slots = free(&self.slots).await;
        // Held from before the fetch until the outcome is written, so that an orphaned row finds no running and no fetched row
        // in this process; in an outage as `Running` says.
        let lock = Permit::Inbox(self.pipeline.isolation_lock.inbox().await);
        if self.pipeline.draining.is_cancelled() {
            return Ok(false);
        }
        let size = self.pipeline.throttle.size();
        let began = Instant::now();
        let (rows, bytes) = self.pipeline.parked_rows.limit(slots.len() * size);
        let wanted = FetchLimit { kind: RowKind::Ordinary, rows, bytes, since: self.window.since(began) };
        let fetched = self.fetch(wanted, lock).await?;
        // The rows that were released are due: without a rest they would be fetched again and again during the outage.
        let Some((rows, Permit::Inbox(permit))) = fetched else { return Ok(false) };
        self.window.found(began, &rows);
        let all = rows.len() == wanted.rows || bytes_of(&rows) >= wanted.bytes;
        // Spread over the slots, rather than in one batch that leaves the other slots idle.
        let size = rows.len().div_ceil(slots.len().max(1)).clamp(1, size);
        let mut rows = rows.into_iter();
        for slot in slots {
            let batch: Vec<Row> = rows.by_ref().take(size).collect();
            if batch.is_empty() {
                break;
            }
            // By batch: a handler that hangs holds only its own batch in memory.
            let held = (slot, self.pipeline.parked_rows.reserve(bytes_of(&batch)));
            let (pipeline, permit) = (self.pipeline.clone(), permit.clone());
            tasks.spawn(async move {
                let _held = held;
                let running = Running::new(Permit::Inbox(permit));
                let work = pin!(pipeline.run_rows(&batch, &running));
                pipeline.defect.task("inbox", running.during(&pipeline.outage, work)).await;
            });
        }
        Ok(all)
    }

    /// Fetches rows under a lock. Their start may be counted even if the fetch gets no answer, so the lock is held until they are
    /// found, except in an outage: no orphaned row of another database may wait for its end. Returns `None` after that: the rows
    /// were released, since anything may have started meanwhile.
    pub(super) async fn fetch(&self, limit: FetchLimit, lock: Permit) -> Fetched {
        let (pipeline, running) = (&*self.pipeline, Running::new(lock));
        let fetched = pin!(pipeline.fetched(&self.fetches, limit));
        let rows = running.during(&pipeline.outage, fetched).await?.rows;
        if let Some(lock) = running.into_lock() {
            return Ok(Some((rows, lock)));
        }
        let _held = pipeline.leases.hold(&rows);
        join_all(rows.iter().map(|row| pipeline.snooze(row, Duration::ZERO))).await;
        Ok(None)
    }
}

/// The rows that were fetched, and the lock that is still held.
type Fetched = Result<Option<(Vec<Row>, Permit)>, StoreError>;

impl<S: Store> Pipeline<S> {
    /// Ends a round of a loop that fetches rows. Unless more may be due at once, waits until a row is `due` here or the poll
    /// interval elapses, and then for the end of an outage. The drain ends the wait. Returns whether more may be due.
    pub(crate) async fn rest_after(
        &self,
        round: Result<bool, StoreError>,
        due: &Notify,
        tasks: &mut JoinSet<()>,
    ) -> bool {
        let more = matches!(round, Ok(true));
        if let Err(fault) = round {
            self.outage.report(&fault);
        }
        while tasks.try_join_next().is_some() {}
        if !more {
            let rest = async {
                tokio::select! {
                    () = due.notified() => {}
                    () = tokio::time::sleep(jittered(self.settings.poll)) => {}
                }
                self.outage.over().await;
            };
            self.draining.run_until_cancelled(rest).await;
        }
        more
    }

    /// Fetches rows, to run them or to make their calls. The token is generated before the fetch, so that those whose fetch got no
    /// response are found by it, and can then begin.
    pub(crate) async fn fetched(&self, handlers: &[FetchFor], limit: FetchLimit) -> Result<FetchedRows, StoreError> {
        let (token, since) = (Uuid::new_v4(), Instant::now());
        let own = self.own_statements.lock().await;
        let answer = self.store.fetch(handlers, limit, token).await;
        drop(own);
        let mut fetched = match answer {
            Err(fault @ StoreError::ConnectionLost(_)) => {
                self.outage.report(&fault);
                // Also while the worker drains: what was fetched counts as called until it is released.
                let found = self.outage.retry_until_answered(&self.stop, || self.store.rows_by_token(token)).await;
                FetchedRows { rows: found.unwrap_or_default(), since }
            }
            answer => answer?,
        };
        fetched.rows.iter_mut().for_each(|row| self.complete(row));
        Ok(fetched)
    }
}

/// Waits for a free slot. Returns it with all others that are free.
pub(crate) async fn free(slots: &Arc<Semaphore>) -> Vec<OwnedSemaphorePermit> {
    let first = slots.clone().acquire_owned().await;
    first.into_iter().chain(std::iter::from_fn(|| slots.clone().try_acquire_owned().ok())).collect()
}

fn bytes_of(rows: &[Row]) -> usize {
    rows.iter().map(Row::bytes).sum()
}
