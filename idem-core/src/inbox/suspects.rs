//! Runs suspects: rows that may have ended their process. They are reserved first, and then run with nothing concurrent
//! that they could harm.

use std::slice;
use std::time::{Duration, Instant};

use crate::runtime::{Isolated, Pipeline};
use crate::store::{MAX_STARTS, Row, RowKind, RowResult, StoreError, SuspectIsolation, TakeLimit};
use crate::{Reason, Store};

use super::row::rejected;
use super::runner::{POLL_DUE, Runner};

impl<S: Store> Runner<S> {
    /// Runs suspects, one after another. Returns whether one was run or left to its codec: then more may be due.
    ///
    /// Suspects of the first stage share one quiet period of the inbox, as many as fit into it. One of the second stage
    /// releases the process as soon as its outcome is written.
    pub(super) async fn suspects(&self) -> Result<bool, StoreError> {
        let draining = &self.pipeline.draining;
        // One suspect per process, from its reservation to its outcome.
        let turn = tokio::select! {
            turn = self.pipeline.suspect_lock.turn() => turn,
            () = draining.cancelled() => return Ok(false),
        };
        let (began, mut quiet, mut any) = (Instant::now(), None::<(Isolated, Instant)>, false);
        while !draining.is_cancelled() {
            // Reserved before the process goes quiet for it, so that no other process of the fleet does.
            let Some(mut row) = self.take(RowKind::Suspect, TakeLimit::rows(1)).await?.pop() else { break };
            if self.pipeline.suspect_left_to_prepare(&row).await {
                (quiet, any) = (None, true);
                // However many of them wait for a registry, ordinary rows get their turn.
                if began.elapsed() < POLL_DUE {
                    continue;
                }
                break;
            }
            let held = self.pipeline.leases.hold(slice::from_ref(&row));
            let isolation = row.isolation();
            let (isolated, since) = match quiet.take().filter(|_| isolation == SuspectIsolation::Inbox) {
                Some(kept) => kept,
                None => tokio::select! {
                    isolated = turn.isolate(isolation) => (isolated, Instant::now()),
                    () = draining.cancelled() => {
                        self.pipeline.record_result(&row, &RowResult::Released { due: Duration::ZERO }).await;
                        break;
                    }
                },
            };
            match self.begin(&mut row).await {
                Ok(true) => {}
                // Its reservation has expired: another process has it now.
                Ok(false) => continue,
                Err(fault) => {
                    // Released first, so that others do not wait: this may take as long as the outage.
                    drop((isolated, turn));
                    self.pipeline.record_result(&row, &RowResult::Released { due: Duration::ZERO }).await;
                    return Err(fault);
                }
            }
            drop(held);
            let mut isolated = Some(isolated);
            self.pipeline.run_isolated(&row, &mut isolated).await;
            any = true;
            match isolated {
                Some(isolated) if isolation == SuspectIsolation::Inbox && since.elapsed() < POLL_DUE => {
                    quiet = Some((isolated, since));
                }
                _ => break,
            }
        }
        Ok(any)
    }

    /// Counts the start of a suspect that runs now. If the reservation counted it, the suspect would be charged if this
    /// process ended for another reason while it waits.
    async fn begin(&self, row: &mut Row) -> Result<bool, StoreError> {
        let _own = self.pipeline.own_statements.lock().await;
        let begins = self.pipeline.store.count_start(row, self.pipeline.settings.lease).await?;
        if begins {
            row.starts += 1;
            if row.isolation() == SuspectIsolation::Process {
                tracing::warn!(
                    id = row.id,
                    starts = row.starts,
                    "a suspect runs: its earlier runs may have ended the process"
                );
            }
        }
        Ok(begins)
    }
}

impl<S: Store> Pipeline<S> {
    /// Reports a row that the inbox has made dead because processes ended on it.
    pub(super) async fn tell_of_crash(&self, row: &Row) {
        let error = format!(
            "the process ended {MAX_STARTS} times while the message with the key {} ran, the last two times while nothing ran \
             beside it",
            row.identity.key
        );
        let note = RowResult::Dead { reason: Reason::Crashed, error };
        self.conclude_row(row, async { rejected(row, true, note) }).await;
    }
}
