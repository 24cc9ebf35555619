//! Runs one row that was taken from the inbox.

use std::pin::pin;
use std::slice;
use std::time::Duration;

use tokio::time::Instant;

use crate::batch::Verdict;
use crate::execute::Conclusion;
use crate::external::{CallLimits, without_kind};
use crate::record::{Classified, committed};
use crate::registry::NoJob;
use crate::routes::Route;
use crate::runtime::{Charge, Pipeline, RowUntil, Running, jittered};
use crate::store::{ClaimState, Claimed, Identity, MAX_BREAKS, NewRow, Row, RowResult, StoreError};
use crate::{Outcome, Reason, RetryPolicy, Store, telemetry};

use super::result::{REFUSED, Recorded};

/// When a row runs again whose handler stages a local message that has to wait for another transaction.
const BUSY: Duration = Duration::from_secs(1);

impl<S: Store> Pipeline<S> {
    /// Runs a taken row, and records its result. In every case the row is processed, its result is recorded, or its
    /// lease expires.
    pub(super) async fn run_row(&self, row: &Row, running: &Running) {
        self.finish_row(row, Verdict::Single, running).await;
    }

    /// Records the result that a batch has left to record for a row, or runs the row.
    pub(super) async fn finish_row(&self, row: &Row, verdict: Verdict, running: &Running) {
        // Pinned first, like other large futures: each call would move the whole future.
        let work = pin!(async {
            match verdict {
                Verdict::Single if !row.identity.has_key() => self.readmit(row, running).await,
                Verdict::Single => self.rerun(row, running).await,
                Verdict::Done(outcome) => {
                    let meters = self.routes.meters(row.identity.handler);
                    row.waited.into_iter().for_each(|waited| meters.inbox_wait.record(waited));
                    Some(outcome)
                }
                Verdict::Lost => self.refund_start(row).await,
                Verdict::Broke => self.broke(row, "the connection was lost with a batch").await,
                Verdict::Stopped => self.put_off(row).await,
            }
        });
        self.report_row(row, work).await;
    }

    /// Leaves a row to its external call, if it has no answer yet; or to a version of the service that makes the call, if
    /// this one does not. One with the answer of another call is dead. Returns the outcome of a row that is not run.
    async fn left(&self, route: &Route<S>, row: &Row) -> Option<Option<Outcome>> {
        match &route.external {
            Some(call) if row.answer.is_none() => {
                self.leave_to_call(row, call.first_provider_key(&row.identity, &row.delivery)).await;
            }
            Some(call) if !call.limits.is_of(row) => {
                return Some(self.reject(row, Reason::Permanent, of_another(row, &call.limits)).await);
            }
            None if row.may_have_called() => self.leave_to_caller(row).await,
            _ => return None,
        }
        Some(None)
    }

    /// Begin, start, handle, guard, commit; then records a failure. Returns `None` if there is no outcome.
    async fn rerun(&self, row: &Row, running: &Running) -> Option<Outcome> {
        let route = self.routes.get(row.identity.handler)?;
        if let Some(left) = self.left(route, row).await {
            return left;
        }
        let taken = Instant::now();
        for rounds in 0.. {
            let fits = self.limit(&row.delivery).map_err(NoJob::from);
            let again = |_user_code| fits.and_then(|()| self.again(route, &row.delivery, &row.identity));
            let Some(decoded) = running.user_code().map(again) else { return self.put_off(row).await };
            let job = match decoded {
                Ok(job) => job,
                Err(why) => return self.without_job(row, why).await,
            };
            // All connections may be in use for longer than the lease. From the start on, the row is locked.
            let held = self.leases.hold(slice::from_ref(row));
            let mut txn = match self.store.begin(route.timeout).await {
                Ok(txn) => txn,
                Err(fault) => return self.give_back(row, fault).await,
            };
            drop(held);
            match self.store.start(&mut txn, &[row]).await.map(|started| started == [true]) {
                Ok(true) if rounds == 0 => {
                    row.waited.into_iter().for_each(|waited| route.meters.inbox_wait.record(waited + taken.elapsed()));
                }
                Ok(true) => {}
                Ok(false) => return self.lease_lost(row, txn).await,
                Err(fault) => {
                    drop(txn);
                    return self.give_back(row, fault).await;
                }
            }
            let ran = self.execute(running, route, (&row.identity, &row.delivery), job, txn, Instant::now()).await;
            return match self.conclude(route, ran, row.attempts, rounds) {
                Conclusion::Retry => continue,
                Conclusion::Processed => Some(Outcome::Processed),
                Conclusion::Charge(charge) => self.charge_row(row, charge).await,
                Conclusion::Busy => {
                    self.record_result(row, &RowResult::GivenBack { due: jittered(BUSY) }).await;
                    None
                }
                Conclusion::Broke(fault) => self.broke(row, &crate::error::text(&fault)).await,
                Conclusion::PutOff | Conclusion::Stopped => self.put_off(row).await,
            };
        }
        None
    }

    /// Takes a replayed row that has no key back through decode and key. It becomes a row with a claim, which runs like
    /// any other, or it is a duplicate or conflict of a message that was taken over meanwhile.
    async fn readmit(&self, row: &Row, running: &Running) -> Option<Outcome> {
        let Some(user_code) = running.user_code() else { return self.put_off(row).await };
        let routes = self.routes.takers_of_row(row);
        if routes.len() > 1 {
            let shares = self.share(&row.delivery, &routes);
            drop(user_code);
            return self.readmit_to_all(row, &shares).await;
        }
        let keyed = self.limit(&row.delivery).map_err(NoJob::from).and_then(|()| {
            let route = routes.first().map_or_else(|| self.routes.find(&row.delivery), |route| Ok(*route))?;
            Ok((route, self.decode_for(route, &row.delivery)?.identity))
        });
        drop(user_code);
        let (route, identity) = match keyed {
            Ok(keyed) => keyed,
            Err(why) => return self.without_job(row, why).await,
        };
        match self.rekey(row, route, &identity).await {
            Ok(Some(outcome)) => {
                self.wake_inbox();
                Some(outcome)
            }
            Ok(None) => self.refund_start(row).await,
            Err(fault) => self.give_back(row, fault).await,
        }
    }

    /// Inserts the undated claim and the keyed row, and deletes the row without a key, in one transaction.
    async fn rekey(&self, row: &Row, route: &Route<S>, identity: &Identity) -> Result<Option<Outcome>, StoreError> {
        let held = self.leases.hold(slice::from_ref(row));
        let mut txn = self.store.begin(self.settings.handler_timeout).await?;
        drop(held);
        let claimed = self.store.claim(&mut txn, &[identity], ClaimState::Waiting).await?;
        let claimed = claimed.first().copied().unwrap_or(Claimed::Found(None));
        let mut classified = self.classify_in(&mut txn, &row.delivery, identity, claimed).await?;
        let (delivery, attempts, due) = (&row.delivery, row.attempts, Duration::ZERO);
        match &mut classified {
            Classified::New => {
                let new = NewRow::new(identity, delivery, Ok(due)).with_attempts(attempts, &row.error);
                let new = match route.first_provider_key(identity, delivery) {
                    Some(provider_key) => new.with_call(provider_key),
                    None => new,
                };
                self.store.insert(&mut txn, &[new]).await?;
            }
            Classified::TooOld(dead) => {
                let state = Err(Reason::TooOld);
                let new = NewRow::new(identity, delivery, state).with_attempts(attempts, &dead.error);
                dead.row = self.store.insert(&mut txn, &[new]).await?.pop();
            }
            _ => {}
        }
        let outcome = match &classified {
            Classified::New => Outcome::Scheduled { attempt: attempts, due },
            known => known.outcome(&route.meters).ok_or(StoreError::LockTimeout)?,
        };
        if !self.store.remove(&mut txn, row).await? {
            self.store.rollback(txn).await?;
            return Ok(None);
        }
        committed(self.store.commit(txn).await)?;
        classified.tell();
        Ok(Some(outcome))
    }

    /// Records a failure of the row.
    async fn charge_row(&self, row: &Row, charge: Charge) -> Option<Outcome> {
        let recorded = match &charge.left_by {
            None => self.try_to_record(row, &charge.result()).await,
            Some(left_by) => match self.record_early_commit(&row.delivery, &row.identity, &charge, left_by).await {
                Ok(outcome) => return Some(outcome),
                Err(_) => Recorded::Refused,
            },
        };
        match recorded {
            Recorded::Written => {}
            Recorded::Refused => return self.charge_row_later(row, charge).await,
            Recorded::Not => return None,
        }
        let Charge { attempts, next, error, .. } = charge;
        telemetry::tell(Some(row.id), attempts, next, &error);
        Some(match next {
            Ok(due) => Outcome::Scheduled { attempt: attempts, due },
            Err(reason) => Outcome::Dead { reason },
        })
    }

    /// Keeps a row here, outside its slot, until the database records its failure. If too many wait, it is given back, and runs
    /// again; but one that its handler has committed is gone from the inbox, and waits in its slot.
    async fn charge_row_later(&self, row: &Row, charge: Charge) -> Option<Outcome> {
        match self.parked_rows.room(row) {
            Some(room) => self.parked_rows.park(row.clone(), RowUntil::Recorded(charge, room)),
            None if charge.left_by.is_some() => return self.record_later(row, charge).await,
            None => drop(self.record_result(row, &RowResult::GivenBack { due: jittered(REFUSED) }).await),
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
            let existing_claim = self.store.existing_claims(&mut txn, &[&row.identity]).await?.pop();
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

    /// Handles a row that can never run as it is, or cannot run yet.
    async fn without_job(&self, row: &Row, why: NoJob) -> Option<Outcome> {
        match why {
            NoJob::Unfit(unfit) => self.reject(row, unfit.reason, unfit.error).await,
            NoJob::Unprepared | NoJob::Several => self.leave_to_prepare_row(row).await,
        }
    }

    /// Another process has the row now. Our start of it was not a crash, and is refunded.
    async fn lease_lost(&self, row: &Row, txn: S::Txn) -> Option<Outcome> {
        if let Err(fault) = self.store.rollback(txn).await {
            self.outage.hold_for(fault);
        }
        self.refund_start(row).await
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
