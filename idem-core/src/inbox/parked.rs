//! Rows that wait in this process, outside the slots: for their codec, or for a database that refuses to record their failure.

use std::pin::pin;
use std::slice;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::registry::NoJob;
use crate::routes::Route;
use crate::runtime::{Charge, ParkedRow, Pipeline, Prepared, Preparing, RowUntil, refused_wait, warn_of_refusal};
use crate::store::{Row, RowResult, Ticket};
use crate::{BoxError, Outcome, Reason, Store, telemetry};

use super::result::{REFUSED, rejected};

impl<S: Store> Pipeline<S> {
    /// Leaves a row that cannot be decoded yet to its codec's preparation, which runs outside the slots: a registry
    /// that hangs must not delay other rows. The row keeps its token, so that no process takes it meanwhile, and its
    /// start is refunded, so that the end of this process charges it with nothing.
    ///
    /// If another message of its handler prepares, or if its codec forgets, the row is given back for a while instead.
    pub(super) async fn leave_to_prepare_row(&self, row: &Row) -> Option<Outcome> {
        let turn = match self.turn_to_prepare(row) {
            Ok(turn) => turn,
            Err(due) => {
                self.record_result(row, &RowResult::GivenBack { due }).await;
                return None;
            }
        };
        self.refund_start(row).await;
        self.parked_rows.park(row.clone(), RowUntil::Prepared(turn));
        None
    }

    /// Keeps the rows that wait here, until no more rows run and none is left.
    pub(super) async fn keep_parked_rows(&self) {
        let (mut waits, mut open) = (FuturesUnordered::new(), true);
        while open || !waits.is_empty() {
            tokio::select! {
                parked = self.parked_rows.next(), if open => match parked {
                    Some(ParkedRow { row, until }) => waits.push(self.keep_row(row, until)),
                    None => open = false,
                },
                Some(()) = waits.next() => {}
            }
        }
    }

    async fn keep_row(&self, row: Row, until: RowUntil) {
        let _held = self.leases.hold(slice::from_ref(&row));
        let work = pin!(async {
            match until {
                RowUntil::Prepared(turn) => self.prepare_row(&row, turn).await,
                RowUntil::Recorded(charge, _room) => self.record_later(&row, charge).await,
            }
        });
        self.report_row(&row, work).await;
        self.wake_inbox();
    }

    /// Runs the preparation for a row, and gives the row back: due at once if it has succeeded.
    async fn prepare_row(&self, row: &Row, turn: Preparing) -> Option<Outcome> {
        let due = match self.unless_draining(self.prepare_codec_of(row, turn)).await {
            Some(Prepared::Never(error)) => {
                let result = RowResult::Dead { reason: Reason::Undecodable, error };
                let recorded = matches!(self.record_parked(row, &result).await, Some(Ok(true)));
                return rejected(row, recorded, result);
            }
            Some(Prepared::After(due)) => due,
            Some(Prepared::Done) | None => Duration::ZERO,
        };
        self.record_parked(row, &RowResult::Released { due }).await;
        None
    }

    /// Records a failure that the database has refused to record. It is tried again after longer and longer waits. If the
    /// worker drains before, the row is given back, and runs again.
    pub(super) async fn record_later(&self, row: &Row, charge: Charge) -> Option<Outcome> {
        if let Some(left_by) = &charge.left_by {
            return self.record_early_commit_later(row, &charge, left_by).await;
        }
        self.refund_start(row).await;
        let result = charge.result();
        let Charge { attempts, next, error, .. } = charge;
        for tries in 1.. {
            if self.unless_draining(tokio::time::sleep(refused_wait(tries - 1))).await.is_none() {
                break;
            }
            match self.record_parked(row, &result).await? {
                Ok(true) => {
                    telemetry::tell(Some(row.id), attempts, next, &error);
                    return Some(match next {
                        Ok(due) => Outcome::Scheduled { attempt: attempts, due },
                        Err(reason) => Outcome::Dead { reason },
                    });
                }
                Ok(false) => return None,
                Err(refused) => warn_of_refusal(&row.delivery, Some(tries + 1), refused.as_ref()),
            }
        }
        self.record_parked(row, &RowResult::Released { due: Duration::ZERO }).await;
        None
    }

    /// Does the same for a row that its handler has committed: it is gone, and cannot be given back. It is tried once more when
    /// the worker drains.
    async fn record_early_commit_later(&self, row: &Row, charge: &Charge, left_by: &Ticket) -> Option<Outcome> {
        let mut tries = 0;
        loop {
            let drains = self.unless_draining(tokio::time::sleep(refused_wait(tries))).await.is_none();
            match self.record_early_commit(&row.delivery, &row.identity, charge, left_by).await {
                Ok(outcome) => return Some(outcome),
                Err(_) if drains => return None,
                Err(_) => tries += 1,
            }
        }
    }

    /// Records the result of a row that waits here on the inbox's own connection, since these rows have no slot. If the database
    /// refuses anything but a failure, the row is given back instead. Returns `None` if the worker stops.
    async fn record_parked(&self, row: &Row, result: &RowResult) -> Option<Result<bool, BoxError>> {
        let record = async |result: &RowResult| {
            let write = || async {
                let _own = self.own_statements.lock().await;
                self.store.record_result(row, result).await
            };
            self.outage.insist_unless_refused(&self.stop, write).await
        };
        let recorded = record(result).await?;
        if let (Err(error), RowResult::Dead { .. }) = (&recorded, result) {
            warn_of_refusal(&row.delivery, None, error.as_ref());
            record(&RowResult::Released { due: REFUSED }).await;
        }
        Some(recorded)
    }

    /// Returns the handler whose codec has to prepare for a row that has no key.
    fn unprepared_of_row<'a>(&'a self, row: &'a Row) -> Option<&'a Route<S>> {
        match &self.routes.takers_of_row(row)[..] {
            [only] => Some(only),
            several => {
                let unprepared =
                    |route: &&&Route<S>| matches!(self.decode_for(route, &row.delivery), Err(NoJob::Unprepared));
                several.iter().find(unprepared).copied()
            }
        }
    }

    async fn prepare_codec_of(&self, row: &Row, turn: Preparing) -> Prepared {
        let route = match row.identity.has_key() {
            true => self.routes.get(row.identity.handler),
            // Its handler is looked up again.
            false => {
                let _beside = self.suspect_lock.direct().await;
                self.unprepared_of_row(row)
            }
        };
        match route {
            Some(route) => self.prepare(turn, route, &row.delivery, Some((row.id, None))).await,
            // The run of the row reports the reason.
            None => Prepared::Done,
        }
    }

    /// Returns `None` if the worker drains first.
    async fn unless_draining<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.draining.cancelled() => None,
        }
    }
}
