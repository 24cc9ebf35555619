//! Runs one row that was taken from the inbox.

use std::pin::pin;
use std::time::Duration;

use crate::caught::dropped;
use crate::external::{CallLimits, without_kind};
use crate::run::{Failure, Work};
use crate::runtime::{Ended, Pipeline, Running, Wait, jittered, warn_of_refusal};
use crate::store::{MAX_BREAKS, Row, RowResult};
use crate::take_over::Entry;
use crate::{Outcome, Reason, RetryPolicy, Store, telemetry};

use super::parked::KeptFor;
use super::result::REFUSED;

/// When a row runs again that has to wait for another transaction.
const BUSY: Duration = Duration::from_secs(1);

/// The same for one of whose statements idem got no answer.
const UNANSWERED: Duration = Duration::from_millis(100);

impl<S: Store> Pipeline<S> {
    /// Runs a taken row that has to run alone, or records what has become of it in a batch. In every case the row is processed,
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
                // The row takes it if it has none yet.
                let provider_key = call.first_provider_key(&row.identity, &row.delivery);
                self.record_result(row, &RowResult::LeftToCall { provider_key }).await;
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
        let routes = self.routes.takers_of_row(row);
        let (mut entries, is_unprepared) = self.shares(&row.delivery, &routes);
        drop(user_code);
        if is_unprepared {
            return Some(Ended::Park(Wait::Codec));
        }
        // One that no other handler can take either is dead as it is.
        let unfit = match (&routes[..], &entries[..]) {
            ([], _) => Some(Failure::unfit(self.routes.untaken(&row.delivery))),
            ([_], [entry]) if !entry.identity.has_key() => Some(entry.failure.clone().into_owned()),
            _ => None,
        };
        if let Some(failure) = unfit {
            return Some(Ended::Failed(failure));
        }
        entries.iter_mut().for_each(|entry| entry.replaces = Some(row));
        let shared = match self.store_shared(&entries).await {
            Ok(shared) => shared,
            Err(ended) => return Some(ended),
        };
        for (identity, outcome) in shared.outcomes {
            self.emit(self.routes.get(identity.handler), identity.known_key(), &row.delivery, &outcome);
        }
        None
    }

    /// Records what has become of a row, unless it is processed: then its run has removed it. Returns its outcome, if it has one.
    async fn record(&self, row: &Row, ended: Ended) -> Option<Outcome> {
        let due = match ended {
            Ended::Done(outcome) => return Some(outcome),
            Ended::Failed(Failure { attempts: 0, next: Err(reason), error, .. }) => {
                return self.reject(row, reason, error).await;
            }
            Ended::Failed(failure) => return self.charge_row(row, failure).await,
            Ended::Broke(fault) => return self.broke(row, &crate::error::text(&fault)).await,
            Ended::Lost => return self.refund_start(row).await,
            Ended::Park(Wait::Codec) => return self.leave_to_prepare_row(row).await,
            Ended::Park(Wait::Claim) | Ended::Again(_) => jittered(BUSY),
            Ended::Park(Wait::Refused(error)) => {
                warn_of_refusal(&row.delivery, None, error.as_ref());
                jittered(REFUSED)
            }
            Ended::Park(Wait::Answer) => UNANSWERED,
            Ended::Park(Wait::After(due)) => due,
            Ended::Park(_) | Ended::Stopped => Duration::ZERO,
        };
        self.snooze(row, due).await
    }

    /// Records a failure of the row. If the database refuses that, the row is kept here, outside its slot, until it is recorded.
    /// If too many wait, it is given back, and runs again; but one that its handler has committed is gone from the inbox, and
    /// waits in its slot.
    async fn charge_row(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        match self.try_to_charge(row, &failure, None).await {
            Err(Ended::Park(_)) => {}
            written => return written.ok(),
        }
        match self.parked_rows.room(row) {
            Some(room) => self.parked_rows.park(row, KeptFor::Record(failure, room)),
            None if failure.left_by.is_some() => return self.record_later(row, failure).await,
            None => return self.snooze(row, jittered(REFUSED)).await,
        }
        None
    }

    /// Records a failure of the row, or makes it dead if its handler has committed it. `tries`: as for
    /// [`try_to_record`](Self::try_to_record).
    pub(super) async fn try_to_charge(
        &self,
        row: &Row,
        failure: &Failure,
        tries: Option<usize>,
    ) -> Result<Outcome, Ended> {
        let Some(left_by) = &failure.left_by else {
            return self.try_to_record(row, &failure.result(), tries).await.map(|()| failure.logged(row.id));
        };
        match self.store_committed(&Entry::failed(row.identity.clone(), &row.delivery, failure), left_by).await {
            Ended::Done(outcome) => Ok(outcome),
            ended => Err(ended),
        }
    }

    /// Records that the run lost its connection. No failure is charged, but a count detects a message that breaks its
    /// connection repeatedly. If the run had committed after all, the row is gone, and its claim is dated.
    async fn broke(&self, row: &Row, error: &str) -> Option<Outcome> {
        let due = break_policy().wait(row.lost_connections + 1);
        if self.record_result(row, &RowResult::Broke { due, error: crate::error::clean(error) }).await {
            let given_up = row.lost_connections + 1 >= MAX_BREAKS;
            if given_up {
                telemetry::tell(Some(row.id), row.attempts, Err(Reason::BrokeConnection), error);
            }
            return given_up.then_some(Outcome::Dead { reason: Reason::BrokeConnection });
        }
        let read = || async {
            let mut txn = self.store.begin(self.settings.handler_timeout).await?;
            let existing_claim = self.store.existing_claims(&mut txn, &[&row.identity], true).await?.pop();
            self.store.rollback(txn).await?;
            Ok(existing_claim)
        };
        let existing_claim = self.outage.insist(&self.stop, read).await.flatten().flatten();
        let is_processed = existing_claim.is_some_and(|existing_claim| existing_claim.age.is_some());
        is_processed.then(|| {
            // It has got no answer to its commit, which would have been recorded.
            self.health.progress();
            Outcome::Processed
        })
    }
}

/// Returns the delays after which a row that lost its connection runs again: short ones, since the cause is mostly an
/// outage.
fn break_policy() -> RetryPolicy {
    RetryPolicy::new().min_delay(Duration::from_millis(100)).factor(2.0).max_delay(Duration::from_secs(10))
}

/// The error of a row whose answer another call has got: it would be read as that of this one.
fn of_another(row: &Row, limits: &CallLimits) -> String {
    let (made, name) = (without_kind(row.call_name.as_deref().unwrap_or_default()), limits.name);
    format!(
        "the answer that is kept is that of the call `{made}`, and the handler now makes the call `{name}`: if they are the same, keep \
         the name, `#[external(.., name = {made:?})]`, and replay the message; otherwise give it an answer by `Inbox::resolve`"
    )
}
