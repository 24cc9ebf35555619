//! Runs suspects: rows that may have ended their process. The lock comes first, so that nothing runs that they could harm,
//! and then the fetch, which counts the start.

use std::pin::pin;
use std::time::{Duration, Instant};

use crate::Store;
use crate::runtime::{Isolated, Permit, Running, at};
use crate::store::{Row, RowKind, StoreError, SuspectIsolation, TakeLimit};

use super::taker::{POLL_DUE, Taker};

/// The minimum interval between two log lines about suspects that are put off.
const TELL: Duration = Duration::from_secs(60);

/// How often a process looks whether a suspect is still due for which it waits: another one may have fetched it.
const LOOK: Duration = Duration::from_secs(1);

impl<S: Store> Taker<S> {
    /// Runs suspects that need this isolation, one after another. Returns whether one was run: then more may be due.
    ///
    /// Those of the first stage share one quiet period of the inbox, as many as fit into it. If a row runs for long,
    /// they let others start, and try again later. One of the second stage releases the process as soon as its outcome
    /// is written. `ordinary`: other rows are due.
    pub(super) async fn suspects(&self, isolation: SuspectIsolation, ordinary: bool) -> Result<bool, StoreError> {
        let (locks, lease) = (&self.pipeline.suspect_lock, self.pipeline.settings.lease);
        if locks.is_early(isolation, ordinary) {
            return Ok(false);
        }
        let began = Instant::now();
        let Some(isolated) = self.isolated(isolation, began).await? else { return Ok(false) };
        let quiet = Instant::now();
        let (mut isolated, mut any) = (Some(isolated), false);
        while isolated.is_some() && !self.pipeline.draining.is_cancelled() {
            let Some(row) = self.fetch(isolation, &mut isolated).await? else { break };
            any = true;
            let Some(lock) = isolated.take() else {
                // The answer to the fetch came after an outage, in which anything may have started.
                self.pipeline.put_off(&row).await;
                break;
            };
            if isolation == SuspectIsolation::Process {
                tracing::warn!(
                    id = row.id,
                    starts = row.crash_count,
                    "a suspect runs alone: its earlier runs may have ended the process; after four it is a dead letter"
                );
            }
            isolated = self.run(&row, lock).await;
            if isolation == SuspectIsolation::Process || quiet.elapsed() >= POLL_DUE {
                break;
            }
        }
        locks.ran(began, quiet, lease);
        Ok(any)
    }

    /// Runs a suspect until its outcome is written. Returns its isolation, unless an outage has ended that.
    async fn run(&self, row: &Row, isolated: Isolated) -> Option<Isolated> {
        let running = Running::new(Permit::Suspect(isolated));
        self.pipeline.under(&running, self.pipeline.run_row(row, &running)).await;
        running.into_isolated()
    }

    /// Fetches the suspect that is due first, and counts its start.
    async fn fetch(
        &self,
        isolation: SuspectIsolation,
        isolated: &mut Option<Isolated>,
    ) -> Result<Option<Row>, StoreError> {
        let kind = if isolation == SuspectIsolation::Process { RowKind::Alone } else { RowKind::Suspect };
        let wanted = TakeLimit { since: self.looks.take_suspect(Instant::now()), ..TakeLimit::rows(1) };
        Ok(self.take(kind, wanted, isolated).await?.pop())
    }

    /// Waits until nothing runs that a suspect could harm. Returns `None` if the suspect has to try again later: the
    /// worker drains, no such row is due any more, or the wait has lasted so long that others may start first, or this
    /// worker's database is unavailable. The suspect could not begin then, and nothing would start in workers of other
    /// databases meanwhile.
    async fn isolated(&self, isolation: SuspectIsolation, began: Instant) -> Result<Option<Isolated>, StoreError> {
        let (locks, lease) = (&self.pipeline.suspect_lock, self.pipeline.settings.lease);
        let limit = tokio::time::Instant::from_std(began).checked_add(locks.limit(lease));
        let mut isolated = pin!(locks.isolate(isolation));
        loop {
            tokio::select! {
                biased;
                () = self.pipeline.draining.cancelled() => return Ok(None),
                () = self.pipeline.outage.began() => {
                    if self.put_off.allows(TELL) {
                        tracing::info!(
                            consumer = self.pipeline.consumer,
                            "a row that may have ended its process is put off until its database can be used"
                        );
                    }
                    return Ok(None);
                }
                isolated = &mut isolated => return Ok(Some(isolated)),
                () = at(limit) => {
                    locks.gave_up(began);
                    tracing::info!(waited = ?began.elapsed(), "a row that may have ended its process waits until fewer run");
                    return Ok(None);
                }
                () = tokio::time::sleep(LOOK) => {}
            }
            if !self.is_due(isolation).await? {
                return Ok(None);
            }
        }
    }

    /// Returns whether a suspect is still due that needs this isolation.
    async fn is_due(&self, isolation: SuspectIsolation) -> Result<bool, StoreError> {
        let _own = self.pipeline.own_statements.lock().await;
        let due = self.pipeline.store.poll_due(&self.handlers, self.pipeline.settings.lease).await?;
        Ok(if isolation == SuspectIsolation::Process { due.alone } else { due.suspect })
    }
}
