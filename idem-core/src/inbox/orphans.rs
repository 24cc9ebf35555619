//! Runs orphaned rows: rows that may have ended their process. The lock comes first, so that nothing runs that they could harm,
//! and then the fetch, which counts the start.

use std::pin::pin;
use std::time::{Duration, Instant};

use crate::Store;
use crate::runtime::{Ended, Isolated, Permit, Pipeline, Running};
use crate::store::{FetchLimit, LookBack, RowKind, StoreError};

use super::runner::{POLL_DUE, Runner};

/// How often a process checks whether an orphaned row is still due for which it waits: another one may have fetched it.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

impl<S: Store> Runner<S> {
    /// Runs orphaned rows of this kind, one after another. Returns whether one was run: then more may be due.
    ///
    /// Orphaned rows that run while direct deliveries go on share one quiet period of the inbox, as many as fit into it. If a row
    /// runs for long, orphaned rows let others start, and try again later. A row that has the process to itself releases it as
    /// soon as its outcome is written. `ordinary`: other rows are due.
    pub(super) async fn orphans(&mut self, kind: RowKind, ordinary: bool) -> Result<bool, StoreError> {
        let (locks, lease) = (&self.pipeline.isolation_lock, self.pipeline.settings.lease);
        if locks.is_early(kind, ordinary) {
            return Ok(false);
        }
        let began = Instant::now();
        let Some(isolated) = self.isolated(kind, began).await? else { return Ok(false) };
        let mut lock = Permit::Orphan(isolated);
        let (quiet, mut any) = (Instant::now(), false);
        loop {
            let wanted = FetchLimit { since: self.of_orphans.since(Instant::now()), ..FetchLimit::rows(kind, 1) };
            // Without the lock, nobody was kept out: an outage may have lasted for hours since.
            let Some((rows, held)) = self.fetch(wanted, lock).await? else { return Ok(any) };
            let Some(row) = rows.first() else { break };
            any = true;
            if kind == RowKind::Alone {
                tracing::warn!(
                    id = row.id,
                    starts = row.crash_count,
                    show = %self.pipeline.store.facts().show_row(Some(row.id)),
                    "an orphaned row runs alone: its earlier runs may have ended the process; after four it is a dead letter"
                );
            }
            let running = Running::new(held);
            let Pipeline { outage, .. } = &*self.pipeline;
            running.during(outage, pin!(self.pipeline.finish_row(row, Ended::Again(None), &running))).await;
            let ends = kind == RowKind::Alone || quiet.elapsed() >= POLL_DUE || self.pipeline.draining.is_cancelled();
            match running.into_lock() {
                Some(held) if !ends => lock = held,
                Some(_) => break,
                None => return Ok(true),
            }
        }
        if any {
            locks.ran(quiet - began, began.elapsed(), lease);
        } else {
            // Another process has it, or a statement of somebody else locks it for long: then each poll finds it again.
            locks.gave_up(began.elapsed());
        }
        Ok(any)
    }

    /// Waits until nothing runs that an orphaned row could harm. Returns `None` if the orphaned row has to try again later: the
    /// worker drains, no such row is due any more, or the wait has lasted so long that others may start first, or this
    /// worker's database is unavailable. The orphaned row could not begin then, and nothing would start in workers of other
    /// databases meanwhile.
    async fn isolated(&self, kind: RowKind, began: Instant) -> Result<Option<Isolated>, StoreError> {
        let (locks, lease) = (&self.pipeline.isolation_lock, self.pipeline.settings.lease);
        let left = locks.limit(lease).saturating_sub(began.elapsed());
        let mut late = pin!(tokio::time::sleep(left));
        let mut isolated = pin!(locks.isolate(kind));
        loop {
            tokio::select! {
                biased;
                () = self.pipeline.draining.cancelled() => return Ok(None),
                () = self.pipeline.outage.began() => return Ok(None),
                isolated = &mut isolated => return Ok(Some(isolated)),
                () = &mut late => {
                    locks.gave_up(began.elapsed());
                    tracing::info!(waited = ?began.elapsed(), "a row that may have ended its process waits until fewer run");
                    return Ok(None);
                }
                // The answer of the database may take long, and nothing waits for it.
                due = self.is_still_due(kind) => if !due? {
                    return Ok(None);
                },
            }
        }
    }

    /// Checks after a while whether an orphaned row of this kind is still due.
    async fn is_still_due(&self, kind: RowKind) -> Result<bool, StoreError> {
        tokio::time::sleep(CHECK_INTERVAL).await;
        let _own = self.pipeline.own_statements.lock().await;
        let due =
            self.pipeline.store.poll_due(&self.handlers, self.pipeline.settings.lease, LookBack::default()).await?;
        Ok(if kind == RowKind::Alone { due.alone } else { due.orphan })
    }
}
