//! Runs rows that were fetched from the inbox: together as a batch, and then one by one.

use std::pin::pin;

use crate::caught::dropped;
use crate::external::{CallLimits, without_kind};
use crate::run::{Failure, Work};
use crate::runtime::{Ended, Pipeline, Running, Wait};
use crate::store::{Row, RowResult};
use crate::{Reason, Store};

impl<S: Store> Pipeline<S> {
    /// Runs rows that were fetched from the inbox, none of them an orphaned row, in one transaction. In every case each row is
    /// processed, its result is recorded, or its lease expires.
    pub(super) async fn run_rows(&self, rows: &[Row], running: &Running) {
        if let [row] = rows {
            return self.finish_row(row, Ended::Again(None), running).await;
        }
        let _held = self.leases.hold(rows);
        let admitted = running.user_code().map(|_user_code| self.admit_rows(rows));
        let ended = match admitted {
            Some(works) => self.run_together(works, rows.len(), running).await,
            None => rows.iter().map(|_| Ended::Park(Wait::Free)).collect(),
        };
        Box::pin(self.finish_rows(rows, ended, running)).await;
    }

    /// Returns the rows that can run together, in claim order. Those without a key go back through decode and key, each alone.
    fn admit_rows<'a>(&'a self, rows: &'a [Row]) -> Vec<Work<'a, S>> {
        let admit = |(at, row): (usize, &'a Row)| {
            let route = self.routes.get(row.identity.handler).filter(|_| row.identity.has_key())?;
            // A row that has lost its connection may be the one that breaks it, and would break it for all. One without the
            // answer to its call is moved, alone, and so is one of a call that this handler does not make.
            let fits = match &route.external {
                Some(call) => row.answer.is_some() && call.limits.is_of(row),
                None => !row.may_have_called(),
            };
            if row.lost_connections > 0 || !fits {
                return None;
            }
            let mut work = Work { at, ..Work::of_row(route, row) };
            self.decode_again(&mut work).ok()?;
            Some(work)
        };
        let mut works: Vec<Work<'_, S>> = rows.iter().enumerate().filter_map(admit).collect();
        works.sort_by(|one, other| one.identity.sort_key().cmp(&other.identity.sort_key()));
        works
    }

    /// Finishes each row by what became of it: first those that are done, then the others, one after another, like the deliveries
    /// of a batch. Their leases are extended meanwhile.
    ///
    /// While an orphaned row waits, or the worker drains, rows that have not begun are released instead.
    async fn finish_rows(&self, rows: &[Row], ended: Vec<Ended>, running: &Running) {
        let (done, rest): (Vec<_>, Vec<_>) =
            rows.iter().zip(ended).partition(|(_, ended)| matches!(ended, Ended::Done(_)));
        for (row, mut ended) in done.into_iter().chain(rest) {
            let stops = self.draining.is_cancelled() || self.isolation_lock.keeps_out_rows();
            if stops && matches!(ended, Ended::Again(_)) {
                ended = Ended::Park(Wait::Free);
            }
            self.finish_row(row, ended, running).await;
        }
    }

    /// Runs a fetched row that has to run alone, or records what has become of it in a batch. In every case the row is processed,
    /// its result is recorded, or its lease expires.
    pub(super) async fn finish_row(&self, row: &Row, ended: Ended, running: &Running) {
        // Pinned first, like other large futures: each call would move the whole future.
        let work = pin!(async {
            let ended = match ended {
                Ended::Again(_) => self.run_row(row, running).await?,
                Ended::Done(outcome) => {
                    let meters = self.routes.meters(row.identity.handler);
                    row.waited.into_iter().for_each(|waited| meters.inbox_wait.record(waited));
                    return Some(outcome);
                }
                ended => ended,
            };
            self.record(row, ended).await
        });
        self.report_row(row, work).await;
    }

    /// Runs a row by itself, and returns what has become of it; `None` if nothing is left to record. A row is left to its external
    /// call, if it has no answer yet, or to a version of the service that makes the call, if this one does not. One with the answer
    /// of another call is dead.
    async fn run_row(&self, row: &Row, running: &Running) -> Option<Ended> {
        if !row.identity.has_key() {
            return self.readmit(row, running).await;
        }
        let route = self.routes.get(row.identity.handler)?;
        match &route.external {
            Some(call) if row.answer.is_none() => {
                // The row takes this key if it has none yet.
                let provider_key = call.first_provider_key(&row.identity, &row.delivery);
                let _ = self.record_result(row, &RowResult::LeftToCall { provider_key }, None).await;
                self.wake_inbox();
                return None;
            }
            Some(call) if !call.limits.is_of(row) => {
                return Some(Ended::Failed(Failure::new(Err(Reason::Permanent), of_another(row, &call.limits))));
            }
            None if row.may_have_called() => return Some(self.left_to_caller(row)),
            _ => {}
        }
        let mut work = Work::of_row(route, row);
        let ended = self.run_one(&mut work, running).await;
        // The drop of a message is user code, and the record may take as long as an outage.
        dropped("a message", work);
        Some(ended)
    }

    /// Sends a replayed row that has no key back through decode and key.
    ///
    /// Replaces it by one with a claim for each handler that takes it now, which runs like any other; or
    /// its message is a duplicate or conflict of one that was taken over meanwhile. Reports the outcome of each handler, and then
    /// returns `None`; otherwise what has become of the row.
    async fn readmit(&self, row: &Row, running: &Running) -> Option<Ended> {
        let Some(user_code) = running.user_code() else { return Some(Ended::Park(Wait::Free)) };
        let routes = self.routes.routes_for_row(row);
        let (mut entries, is_unprepared) = self.shares(&row.delivery, &routes);
        drop(user_code);
        if is_unprepared {
            return Some(Ended::Park(Wait::Codec));
        }
        // A message that no other handler can take either is dead as it is.
        let undeliverable = match (&routes[..], &entries[..]) {
            ([], _) => Some(Failure::undeliverable(self.routes.no_route(&row.delivery))),
            ([_], [entry]) if !entry.identity.has_key() => Some(entry.failure.clone()),
            _ => None,
        };
        if let Some(failure) = undeliverable {
            return Some(Ended::Failed(failure));
        }
        entries.iter_mut().for_each(|entry| entry.replaces = Some(row));
        let shared = match self.take_over_for_each(&entries).await {
            Ok(shared) => shared,
            Err(ended) => return Some(ended),
        };
        for (identity, outcome) in shared.outcomes {
            self.emit(&identity, &row.delivery, &outcome);
        }
        None
    }
}

/// The error of a row whose answer another call has got: the answer would be read as that of this call.
fn of_another(row: &Row, limits: &CallLimits) -> String {
    let (made, name) = (without_kind(row.call_name.as_deref().unwrap_or_default()), limits.name);
    format!(
        "the answer that is kept is that of the call `{made}`, and the handler now makes the call `{name}`: if they are the same, keep \
         the name, `#[external(.., name = {made:?})]`, and replay the message; otherwise give it an answer by `idem calls resolve`"
    )
}
