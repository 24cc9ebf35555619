//! Runs suspects: rows that may have ended their process. They are reserved first, and then run with nothing concurrent
//! that they could harm.

use std::pin::pin;
use std::slice;
use std::time::{Duration, Instant};

use crate::Store;
use crate::runtime::{Isolated, Permit, Turn, at};
use crate::store::{Row, RowKind, RowResult, StoreError, SuspectIsolation, TakeLimit};

use super::taker::{POLL_DUE, Taker};

/// The minimum interval between two log lines about suspects that are put off.
const TELL: Duration = Duration::from_secs(60);

/// A suspect that is given up before it begins is due at once.
static RELEASED: RowResult = RowResult::Released { due: Duration::ZERO };

impl<S: Store> Taker<S> {
    /// Runs suspects, one after another. Returns whether one was run or left to its codec: then more may be due.
    ///
    /// Suspects of the first stage share one quiet period of the inbox, as many as fit into it. If a row runs for long,
    /// they let others start, and try again later. One of the second stage releases the process as soon as its outcome
    /// is written. `ordinary`: other rows are due.
    pub(super) async fn suspects(&self, ordinary: bool) -> Result<bool, StoreError> {
        let draining = &self.pipeline.draining;
        let Some(mut turn) = self.turn().await else { return Ok(false) };
        let lease = self.pipeline.settings.lease;
        // The isolation that a suspect of the first stage leaves to the next one, and since when.
        let (began, mut shared, mut any) = (Instant::now(), None::<(Isolated, Instant)>, false);
        let mut closed = began;
        while !draining.is_cancelled() && (shared.is_some() || !turn.is_early(ordinary)) {
            let Some(mut row) = self.reserve().await? else { break };
            let left = self.pipeline.suspect_left_to_prepare(&row);
            let (left, Some(kept)) = self.unless_unavailable((turn, shared), left).await else { return Ok(true) };
            (turn, shared) = kept;
            if left {
                (shared, any) = (None, true);
                // However many of them wait for a registry, ordinary rows get their turn.
                if began.elapsed() < POLL_DUE {
                    continue;
                }
                break;
            }
            let held = self.pipeline.leases.hold(slice::from_ref(&row));
            let isolation = row.isolation();
            let (isolated, since) = match shared.take().filter(|_| isolation == SuspectIsolation::Inbox) {
                Some(kept) => kept,
                None => {
                    let Some((isolated, since)) = self.isolated(&turn, isolation).await else {
                        // This may take as long as an outage of this worker's database.
                        drop(turn);
                        self.pipeline.record_result(&row, &RELEASED).await;
                        return Ok(any);
                    };
                    closed = since;
                    (isolated, Instant::now())
                }
            };
            match self.begin(&mut row).await {
                Ok(true) => {}
                // Its reservation has expired: another process has it now.
                Ok(false) => continue,
                Err(fault) => {
                    self.release(&row, (isolated, turn), &fault).await;
                    return Err(fault);
                }
            }
            drop(held);
            let Some((kept, isolated)) = self.run(&row, turn, isolated).await else { return Ok(true) };
            (turn, any) = (kept, true);
            turn.ran(closed, since, lease);
            let keeps = isolation == SuspectIsolation::Inbox && since.elapsed() < POLL_DUE;
            shared = isolated.filter(|_| keeps).map(|isolated| (isolated, since));
            if shared.is_none() {
                break;
            }
        }
        Ok(any)
    }

    /// Runs a suspect until its outcome is written. Returns the turn, and the isolation unless the run has ended it; `None` if
    /// both have ended in an outage.
    ///
    /// If this worker's database becomes unavailable meanwhile, they end as soon as no user code of the suspect runs: the
    /// outcome cannot be written, and workers of other databases in this process would stand still for as long. Its handler
    /// does not begin without them. If the process ends before the database is back, another message may be charged a start.
    async fn run(&self, row: &Row, turn: Turn, isolated: Isolated) -> Option<(Turn, Option<Isolated>)> {
        let running = self.pipeline.running(Permit::Suspect(turn, Some(isolated)));
        self.pipeline.run_row(row, &running).await;
        running.into_suspect()
    }

    /// Releases a suspect whose start may be counted, since its count had no answer. Until then it stays isolated: a
    /// message that ended the process would charge it. If the database becomes unavailable, the isolation ends, as while it
    /// runs. If it has refused to count, for instance because the table is locked, nothing is counted, and nothing stands
    /// still.
    async fn release(&self, row: &Row, isolated: (Isolated, Turn), fault: &StoreError) {
        let isolated = Some(isolated).filter(|_| !fault.is_answered());
        self.unless_unavailable(isolated, self.pipeline.record_result(row, &RELEASED)).await;
    }

    /// Waits for `work`, and returns `kept` unless the database becomes unavailable meanwhile: the wait may then last as long as
    /// the outage, and no suspect of another database may wait for that.
    async fn unless_unavailable<K, T>(&self, kept: K, work: impl Future<Output = T>) -> (T, Option<K>) {
        let mut work = pin!(work);
        tokio::select! {
            biased;
            done = &mut work => return (done, Some(kept)),
            () = self.pipeline.outage.began() => drop(kept),
        }
        (work.await, None)
    }

    /// Waits for the turn of this worker: one suspect per process, from its reservation to its outcome. Returns `None` if
    /// the worker drains.
    async fn turn(&self) -> Option<Turn> {
        tokio::select! {
            biased;
            turn = self.pipeline.suspect_lock.turn() => Some(turn),
            () = self.pipeline.draining.cancelled() => None,
        }
    }

    /// Reserves the suspect that is due first. That comes before the process goes quiet for it, so that no other process
    /// of the fleet does.
    async fn reserve(&self) -> Result<Option<Row>, StoreError> {
        let wanted = TakeLimit { since: self.looks.take_suspect(Instant::now()), ..TakeLimit::rows(1) };
        Ok(self.take(RowKind::Suspect, wanted, &mut None).await?.pop())
    }

    /// Isolates a suspect. Returns when the wait began, or `None` if the suspect has to try again later: the worker
    /// drains, or the wait has lasted so long that others may start first, or this worker's database is unavailable. The
    /// suspect could not begin then, and nothing would start in workers of other databases meanwhile.
    async fn isolated(&self, turn: &Turn, isolation: SuspectIsolation) -> Option<(Isolated, Instant)> {
        let began = Instant::now();
        let limit = turn.limit(isolation, self.pipeline.settings.lease);
        tokio::select! {
            biased;
            () = self.pipeline.draining.cancelled() => None,
            () = self.pipeline.outage.began() => {
                if self.put_off.allows(TELL) {
                    tracing::info!(
                        consumer = self.pipeline.consumer,
                        "a row that may have ended its process is put off until its database can be used"
                    );
                }
                None
            }
            isolated = turn.isolate(isolation) => Some((isolated, began)),
            () = at(limit.and_then(|limit| tokio::time::Instant::from_std(began).checked_add(limit))) => {
                turn.gave_up(began);
                tracing::info!(waited = ?began.elapsed(), "a row that may have ended its process waits until fewer run");
                None
            }
        }
    }

    /// Counts the start of a suspect that runs now. If the reservation counted it, the suspect would be charged if this
    /// process ended for another reason while it waits.
    async fn begin(&self, row: &mut Row) -> Result<bool, StoreError> {
        let _own = self.pipeline.own_statements.lock().await;
        let begins = self.pipeline.store.count_start(row, self.pipeline.settings.lease).await?;
        if begins {
            row.crash_count += 1;
            if row.isolation() == SuspectIsolation::Process {
                tracing::warn!(
                    id = row.id,
                    starts = row.crash_count,
                    "a suspect runs alone: its earlier runs may have ended the process; after four it is a dead letter"
                );
            }
        }
        Ok(begins)
    }
}
