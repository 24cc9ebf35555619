//! The loop that takes due rows from the inbox and runs them.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;

use crate::Store;
use crate::runtime::{Permit, Pipeline, Running, jittered};
use crate::store::{CRASHED_AT_ONCE, Row, RowKind, StoreError, TakeLimit};

use super::memory::Memory;
use super::taker::{POLL_DUE, Taker};

/// Runs the inbox of a worker until it drains, and then finishes what runs.
///
/// Any number of processes may do so: each row is taken by one of them at a time.
pub(crate) async fn run<S: Store>(pipeline: Arc<Pipeline<S>>) {
    let mut runner = Runner {
        taker: Taker::new(pipeline.clone()),
        slots: Arc::new(Semaphore::new(pipeline.settings.inbox_concurrency())),
        memory: Memory::default(),
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

struct Runner<S: Store> {
    pipeline: Arc<Pipeline<S>>,
    taker: Taker<S>,
    slots: Arc<Semaphore>,
    memory: Memory,
    /// The time of the last poll, as long as more rows are due than there are slots.
    polled: Option<Instant>,
}

impl<S: Store> Runner<S> {
    async fn serve(&mut self) {
        let mut tasks = JoinSet::new();
        while !self.pipeline.draining.is_cancelled() {
            let round = self.round(&mut tasks).await;
            let more = matches!(round, Ok(true));
            if let Err(fault) = round {
                self.pipeline.outage.report(&fault);
            }
            while tasks.try_join_next().is_some() {}
            if !more {
                self.polled = None;
                self.pipeline.rest(&self.pipeline.scheduled, jittered(self.pipeline.settings.poll)).await;
            }
        }
        while tasks.join_next().await.is_some() {}
    }

    /// Makes crashed rows dead letters, runs suspects, and starts as many ordinary rows as there is room for. Returns
    /// whether more may be due at once.
    async fn round(&mut self, tasks: &mut JoinSet<()>) -> Result<bool, StoreError> {
        if self.polled.is_some_and(|at| at.elapsed() < POLL_DUE) {
            return self.ordinary(tasks).await;
        }
        let store = &self.pipeline.store;
        let lease = self.pipeline.settings.lease;
        let own = self.pipeline.own_statements.lock().await;
        let began = Instant::now();
        let due = store.poll_due(&self.taker.handlers, lease, self.taker.looks.due(began)).await?;
        self.polled = Some(Instant::now());
        self.taker.looks.polled(began, due.ordinary, due.suspect || due.alone);
        let crashed =
            if due.crashed { store.dead_letter_crashed(&self.taker.handlers, lease).await? } else { Vec::new() };
        drop(own);
        // If the process ends here, or the response was lost, these dead letters are never reported.
        for row in &crashed {
            self.pipeline.report_crashed(row).await;
        }
        // Due ordinary rows get their turn after the suspects, so that many suspects do not stop them for long.
        let others = due.ordinary && !self.pipeline.is_outbox_full();
        let mut suspects = due.suspect && self.taker.suspects(RowKind::Suspect, others).await?;
        suspects |= due.alone && self.taker.suspects(RowKind::Alone, others).await?;
        let ordinary = due.ordinary && self.ordinary(tasks).await?;
        Ok(suspects || ordinary || crashed.len() == CRASHED_AT_ONCE as usize)
    }

    /// Starts as many rows as can begin at once. Returns whether at least that many were due. While the outbox is full,
    /// no row starts, but suspects and crashed rows do not wait for it.
    async fn ordinary(&mut self, tasks: &mut JoinSet<()>) -> Result<bool, StoreError> {
        if self.pipeline.is_outbox_full() {
            return Ok(false);
        }
        let Ok(first) = self.slots.clone().acquire_owned().await else { return Ok(false) };
        let mut slots = vec![first];
        slots.extend(std::iter::from_fn(|| self.slots.clone().try_acquire_owned().ok()));
        // Held from before the take until the outcome is written, so that a suspect finds no running and no taken row
        // in this process; in an outage as `Running` says.
        let permit = self.pipeline.suspect_lock.inbox().await;
        if self.pipeline.draining.is_cancelled() {
            return Ok(false);
        }
        let size = self.pipeline.throttle.size();
        let began = Instant::now();
        let (rows, bytes) = self.memory.limit(slots.len() * size);
        let wanted = TakeLimit { rows, bytes, since: self.taker.looks.take(began) };
        let taken = self.taker.take(RowKind::Ordinary, wanted, permit).await?;
        // The rows that were given back are due: without a rest they would be taken again and again during the outage.
        let Some((rows, permit)) = taken else { return Ok(false) };
        self.taker.looks.taken(began, &rows);
        let all = rows.len() == wanted.rows || bytes_of(&rows) >= wanted.bytes;
        // Spread over the slots, rather than in one batch that leaves the other slots idle.
        let size = rows.len().div_ceil(slots.len()).clamp(1, size);
        let mut rows = rows.into_iter();
        let mut slots = slots.into_iter();
        loop {
            let batch: Vec<Row> = rows.by_ref().take(size).collect();
            let Some(slot) = slots.next().filter(|_| !batch.is_empty()) else { break };
            // By batch: a handler that hangs holds only its own batch in memory.
            let held = (slot, self.memory.reserve(bytes_of(&batch)));
            let (pipeline, slots, permit) = (self.pipeline.clone(), self.slots.clone(), permit.clone());
            tasks.spawn(async move {
                let _held = held;
                let running = Running::new(Permit::Inbox(permit));
                let work = pin!(pipeline.run_rows(&batch, &slots, &running));
                pipeline.defect.task("inbox", running.during(&pipeline.outage, work)).await;
            });
        }
        Ok(all)
    }
}

impl<S: Store> Pipeline<S> {
    /// Waits until a row is `due` here or the poll interval elapses, and then for the end of an outage. The drain ends the
    /// wait.
    pub(crate) async fn rest(&self, due: &Notify, poll: Duration) {
        let rest = async {
            tokio::select! {
                () = due.notified() => {}
                () = tokio::time::sleep(poll) => {}
            }
            self.outage.over().await;
        };
        self.draining.run_until_cancelled(rest).await;
    }
}

fn bytes_of(rows: &[Row]) -> usize {
    rows.iter().map(Row::bytes).sum()
}
