//! Rows that may have ended their process: reserved first, then run with nothing beside them that they could harm.

use std::slice;
use std::time::Instant;

use crate::Store;
use crate::runtime::Isolated;
use crate::store::{Isolation, Kind, Limit, Note, Row, StoreError};

use super::runner::{POLL_DUE, Runner};

impl<S: Store> Runner<S> {
    /// Runs suspects, one after another. Answers whether one was run: then more may be due.
    ///
    /// Those of the first stage share one quiet moment of the inbox, for as many as fit into it. One of the second stage
    /// gives the process back as soon as its outcome is written.
    pub(super) async fn suspects(&self) -> Result<bool, StoreError> {
        let draining = &self.pipeline.draining;
        // One suspect per process, from its reservation to its outcome.
        let turn = tokio::select! {
            turn = self.pipeline.gate.turn() => turn,
            () = draining.cancelled() => return Ok(false),
        };
        let (mut quiet, mut any): (Option<(Isolated, Instant)>, bool) = (None, false);
        while !draining.is_cancelled() {
            // Reserved before the process goes quiet for it, so that no other one of the fleet does.
            let Some(mut row) = self.take(Kind::Suspect, Limit::rows(1)).await?.pop() else { break };
            let held = self.pipeline.leases.hold(slice::from_ref(&row));
            let isolation = row.isolation();
            let (isolated, since) = match quiet.take().filter(|_| isolation == Isolation::Inbox) {
                Some(kept) => kept,
                None => tokio::select! {
                    isolated = turn.isolate(isolation) => (isolated, Instant::now()),
                    () = draining.cancelled() => {
                        self.pipeline.record_result(&row, &Note::Released).await;
                        break;
                    }
                },
            };
            match self.begin(&mut row).await {
                Ok(true) => {}
                // Its reservation has lapsed: it is another process's now.
                Ok(false) => continue,
                Err(fault) => {
                    // Not while others wait: it may take as long as the database is away.
                    drop((isolated, turn));
                    self.pipeline.record_result(&row, &Note::Released).await;
                    return Err(fault);
                }
            }
            drop(held);
            let mut isolated = Some(isolated);
            self.pipeline.run_isolated(&row, &mut isolated).await;
            any = true;
            match isolated {
                Some(isolated) if isolation == Isolation::Inbox && since.elapsed() < POLL_DUE => {
                    quiet = Some((isolated, since));
                }
                _ => break,
            }
        }
        Ok(any)
    }

    /// Counts the start of a suspect that runs from now on. Counted at its reservation, it would be charged where this
    /// process ends by something else while it waits.
    async fn begin(&self, row: &mut Row) -> Result<bool, StoreError> {
        let _own = self.pipeline.own_statements.lock().await;
        let begins = self.pipeline.store.count_start(row, self.pipeline.settings.lease).await?;
        if begins {
            row.starts += 1;
            if row.isolation() == Isolation::Process {
                tracing::warn!(id = row.id, starts = row.starts, "a message runs on which the process may have ended");
            }
        }
        Ok(begins)
    }
}
