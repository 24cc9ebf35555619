//! Rows whose codec has to fetch something before it can decode them.

use std::pin::pin;
use std::slice;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};

use crate::registry::NoJob;
use crate::routes::Route;
use crate::runtime::{FORGOTTEN, Pipeline, RowPreparation, WantedPreparation, warn_of_refusal};
use crate::store::{Row, RowResult};
use crate::{Outcome, PrepareError, Reason, Store};

use super::result::rejected;

impl<S: Store> Pipeline<S> {
    /// Leaves a row that cannot be decoded yet to its codec's preparation, which runs outside the slots: a registry
    /// that hangs must not delay other rows. The row keeps its token, so that no process takes it meanwhile, and its
    /// start is taken back, so that the end of this process charges it with nothing.
    ///
    /// If its codec has just prepared, and has forgotten the result, the row is given back for a while instead.
    pub(super) async fn leave_to_prepare_row(&self, row: &Row) -> Option<Outcome> {
        self.routes.meters(row.identity.handler).held();
        let (tries, wait) = self.refusals.count(row.id);
        let forgotten = self.refusals.set_preparation(row.id, RowPreparation::Wanted) == RowPreparation::Done;
        if forgotten {
            self.warn_of_unprepared(&row.delivery, tries, FORGOTTEN);
        }
        let Some(room) = self.preparations.room(row.identity.handler).filter(|_| !forgotten) else {
            self.record_result(row, &RowResult::GivenBack { due: wait }).await;
            return None;
        };
        let lease = self.settings.lease;
        let reserved = self.outage.insist(&self.stop, || self.store.uncount_start(row, lease)).await;
        match reserved {
            Some(true) => {
                let row = Row { crash_count: row.crash_count.saturating_sub(1), ..row.clone() };
                self.preparations.want(WantedPreparation { row, tries, wait, room });
                None
            }
            // Another process has taken the row and counted a start, although no process ended.
            Some(false) => self.refund_start(row).await,
            None => None,
        }
    }

    /// Leaves a reserved suspect to its codec's preparation, if it is known to need one: the process must not be
    /// isolated for a row that cannot run. Returns `false` if it can run, as far as is known.
    ///
    /// That its codec needs to prepare was found in isolation, after its start was counted: decoding may be what ends
    /// the process.
    pub(super) async fn suspect_left_to_prepare(&self, row: &Row) -> bool {
        if self.refusals.preparation(row.id) != RowPreparation::Wanted {
            return false;
        }
        self.routes.meters(row.identity.handler).held();
        let (tries, wait) = self.refusals.count(row.id);
        match self.preparations.room(row.identity.handler) {
            Some(room) => self.preparations.want(WantedPreparation { row: row.clone(), tries, wait, room }),
            None => drop(self.record_result(row, &RowResult::Released { due: wait }).await),
        }
        true
    }

    /// Runs the preparations for rows, until no more rows run and none is left.
    pub(super) async fn prepare_rows(&self) {
        let (mut running, mut open) = (FuturesUnordered::new(), true);
        while open || !running.is_empty() {
            tokio::select! {
                wanted = self.preparations.next(), if open => match wanted {
                    Some(wanted) => running.push(self.prepare_row(wanted)),
                    None => open = false,
                },
                Some(()) = running.next() => {}
            }
        }
    }

    /// Runs the preparation for a row, and gives the row back: due at once if it has succeeded.
    async fn prepare_row(&self, wanted: WantedPreparation) {
        let WantedPreparation { row, tries, wait, room: _room } = wanted;
        let _held = self.leases.hold(slice::from_ref(&row));
        let work = pin!(async {
            let due = match self.unless_draining(self.prepare_codec_of(&row)).await {
                Some(Ok(())) => {
                    self.refusals.set_preparation(row.id, RowPreparation::Done);
                    Duration::ZERO
                }
                Some(Err(PrepareError::Undecodable(error))) => {
                    let (reason, error) = (Reason::Undecodable, crate::error::text(error.as_ref()));
                    let result = RowResult::Dead { reason, error };
                    let recorded = self.record_prepared(&row, &result).await;
                    return rejected(&row, recorded, result);
                }
                Some(Err(PrepareError::Unavailable(error))) => {
                    self.warn_of_unprepared(&row.delivery, tries, &crate::error::text(error.as_ref()));
                    wait
                }
                None => Duration::ZERO,
            };
            self.record_prepared(&row, &RowResult::Released { due }).await;
            None
        });
        self.report_row(&row, work).await;
        self.wake_inbox();
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

    async fn prepare_codec_of(&self, row: &Row) -> Result<(), PrepareError> {
        let route = match row.identity.has_key() {
            true => self.routes.get(row.identity.handler),
            // Its handler is looked up again.
            false => {
                let _beside = self.suspect_lock.direct().await;
                self.unprepared_of_row(row)
            }
        };
        match route {
            Some(route) => self.prepare(route, &row.delivery).await,
            // The run of the row reports the reason.
            None => Ok(()),
        }
    }

    /// Records the result of a preparation on the inbox's own connection, since these rows have no slot. If the database
    /// refuses it, the row is given back instead.
    async fn record_prepared(&self, row: &Row, result: &RowResult) -> bool {
        let record = async |result: &RowResult| {
            let write = || async {
                let _own = self.own_statements.lock().await;
                self.store.record_result(row, result).await
            };
            self.outage.insist_unless_refused(&self.stop, write).await
        };
        match record(result).await {
            Some(Ok(recorded)) => recorded,
            Some(Err(error)) => {
                let (tries, due) = self.refusals.count(row.id);
                warn_of_refusal(&row.delivery, tries, error.as_ref());
                record(&RowResult::Released { due }).await;
                false
            }
            None => false,
        }
    }

    /// Returns `None` if the worker drains first.
    async fn unless_draining<T>(&self, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = work => Some(done),
            () = self.draining.begun() => None,
        }
    }
}
