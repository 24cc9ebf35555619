//! Runs one row that was taken from the inbox.

use std::pin::pin;
use std::slice;
use std::time::Duration;

use crate::caught::dropped;
use crate::external::{CallLimits, without_kind};
use crate::routes::Route;
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
            match ended {
                Ended::Again(_) if !row.identity.has_key() => self.readmit(row, running).await,
                Ended::Again(_) => self.run_row(row, running).await,
                Ended::Done(outcome) => {
                    let meters = self.routes.meters(row.identity.handler);
                    row.waited.into_iter().for_each(|waited| meters.inbox_wait.record(waited));
                    Some(outcome)
                }
                ended => self.record(row, ended).await,
            }
        });
        self.report_row(row, work).await;
    }

    /// Leaves a row to its external call, if it has no answer yet; or to a version of the service that makes the call, if
    /// this one does not. One with the answer of another call is dead. Returns the outcome of a row that is not run.
    async fn left(&self, route: &Route<S>, row: &Row) -> Option<Option<Outcome>> {
        match &route.external {
            Some(call) if row.answer.is_none() => {
                // The row takes it if it has none yet.
                let provider_key = call.first_provider_key(&row.identity, &row.delivery);
                self.record_result(row, &RowResult::LeftToCall { provider_key }).await;
                self.wake_inbox();
            }
            Some(call) if !call.limits.is_of(row) => {
                return Some(self.reject(row, Reason::Permanent, of_another(row, &call.limits)).await);
            }
            None if row.may_have_called() => self.leave_to_caller(row).await,
            _ => return None,
        }
        Some(None)
    }

    /// Runs a row by itself, and records what has become of it. Returns `None` if there is no outcome.
    async fn run_row(&self, row: &Row, running: &Running) -> Option<Outcome> {
        let route = self.routes.get(row.identity.handler)?;
        if let Some(left) = self.left(route, row).await {
            return left;
        }
        let mut work = Work::of_row(route, row);
        let ended = self.run(slice::from_mut(&mut work), running).await.pop()?;
        // The drop of a message is user code, and the record may take as long as an outage.
        dropped("a message", work);
        self.record(row, ended).await
    }

    /// Records what has become of a row, unless it is processed: then its run has removed it. Returns its outcome, if it has one.
    pub(super) async fn record(&self, row: &Row, ended: Ended) -> Option<Outcome> {
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

    /// Records a failure of the row.
    async fn charge_row(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        let written = match &failure.left_by {
            None => self.try_to_record(row, &failure.result()).await,
            Some(left_by) => {
                let entry = Entry::failed(row.identity.clone(), &row.delivery, &failure);
                match self.store_committed(&entry, left_by).await {
                    Ended::Done(outcome) => return Some(outcome),
                    ended => Err(ended),
                }
            }
        };
        match written {
            Ok(()) => Some(failure.logged(row.id)),
            Err(Ended::Park(_)) => self.charge_row_later(row, failure).await,
            Err(_) => None,
        }
    }

    /// Keeps a row here, outside its slot, until the database records its failure. If too many wait, it is given back, and runs
    /// again; but one that its handler has committed is gone from the inbox, and waits in its slot.
    async fn charge_row_later(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        match self.parked_rows.room(row) {
            Some(room) => self.parked_rows.park(row, KeptFor::Record(failure, room)),
            None if failure.left_by.is_some() => return self.record_later(row, failure).await,
            None => return self.snooze(row, jittered(REFUSED)).await,
        }
        None
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
