//! Records and reports what has become of rows.

use std::time::Duration;

use tracing::{Instrument, Span};

use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Wait, busy_wait, jittered, warn_of_refusal};
use crate::store::{MAX_LOST_CONNECTIONS, Row, RowResult};
use crate::take_over::Entry;
use crate::{Outcome, Reason, Store};

use super::parked::KeptFor;

/// When a row runs again that has to wait for another transaction.
const BUSY: Duration = Duration::from_secs(1);

/// When a row runs again for one of whose statements idem got no answer.
const UNANSWERED: Duration = Duration::from_millis(100);

/// When a row is tried again that the database refuses, or that is left to another version of the service: an operator has to do
/// something first.
const REFUSED: Duration = Duration::from_secs(10);

/// The minimum interval between two log lines about rows that are left to another version.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

impl<S: Store> Pipeline<S> {
    /// Records what has become of a row, unless it is processed: then its run has removed it. Returns its outcome, if it has one.
    /// If the record is refused or the worker stops, the lease of the row expires; but a refused failure is kept.
    pub(super) async fn record(&self, row: &Row, ended: Ended) -> Option<Outcome> {
        let due = match ended {
            Ended::Done(outcome) => return Some(outcome),
            Ended::Failed(failure) => return self.record_attempt(row, failure).await,
            Ended::Broke(fault) => return self.broke(row, &crate::error::text(&fault)).await,
            Ended::Lost => return self.refund_start(row).await,
            // A registry that hangs must not delay other rows.
            Ended::Park(Wait::Codec) => match self.turn_to_prepare(row) {
                Ok(turn) => {
                    self.parked_rows.park(row, KeptFor::Codec(turn));
                    return None;
                }
                Err(due) => due,
            },
            Ended::Park(Wait::Claim) | Ended::Again(_) => jittered(BUSY),
            Ended::Park(Wait::Refused(error)) => {
                warn_of_refusal(&row.delivery, None, error.as_ref());
                jittered(REFUSED)
            }
            Ended::Park(Wait::Unanswered) => UNANSWERED,
            Ended::Park(Wait::After(due)) => due,
            // An orphaned row comes first, its database is away, or the worker stops.
            Ended::Park(_) | Ended::Stopped => Duration::ZERO,
        };
        self.snooze(row, due).await
    }

    /// Snoozes a row whose handler has not run, or whose run does not count: it is due after this time.
    pub(super) async fn snooze(&self, row: &Row, due: Duration) -> Option<Outcome> {
        let _ = self.record_result(row, &RowResult::Snoozed { due }, None).await;
        None
    }

    /// Records a failure of the row. If the database refuses that, the row is kept here, outside its slot, until it is recorded.
    /// If too many wait, it is snoozed, and runs again.
    async fn record_attempt(&self, row: &Row, failure: Failure) -> Option<Outcome> {
        match self.try_to_record_attempt(row, &failure, None).await {
            Err(Ended::Park(_)) => {}
            written => return written.ok(),
        }
        let Some(slot) = self.parked_rows.failure_slot(row) else { return self.snooze(row, jittered(REFUSED)).await };
        self.parked_rows.park(row, KeptFor::Record(failure, slot));
        None
    }

    /// Records a failure of the row, or makes it dead if it can never run, or if its handler has committed it. `tries`: as for
    /// [`record_result`](Self::record_result).
    pub(super) async fn try_to_record_attempt(
        &self,
        row: &Row,
        failure: &Failure,
        tries: Option<usize>,
    ) -> Result<Outcome, Ended> {
        let Some(left_by) = &failure.left_by else {
            self.record_result(row, &failure.result(), tries).await?;
            // A failure of a message that can never run has counted no attempt.
            let attempts = failure.attempts.max(row.attempts);
            return Ok(Failure { attempts, ..failure.clone() }.logged(self.store.facts(), row.id));
        };
        let entry = Entry::new(row.identity.clone(), &row.delivery, failure.clone());
        match self.dead_letter_committed(&entry, left_by).await {
            Ended::Done(outcome) => Ok(outcome),
            ended => Err(ended),
        }
    }

    /// Records that the run lost its connection. No attempt is recorded, but a count detects a message that breaks its
    /// connection repeatedly. If the run had committed after all, its claim is dated.
    async fn broke(&self, row: &Row, error: &str) -> Option<Outcome> {
        let lost = row.lost_connections + 1;
        // Short at first, since the cause is mostly an outage.
        let due = busy_wait(lost as usize);
        match self.record_result(row, &RowResult::Broke { due, error: crate::error::clean(error) }, None).await {
            Ok(()) if lost >= MAX_LOST_CONNECTIONS => {
                let failure = Failure { attempts: row.attempts, ..Failure::new(Err(Reason::BrokeConnection), error) };
                Some(failure.logged(self.store.facts(), row.id))
            }
            Ok(()) => None,
            Err(Ended::Park(_)) => self.snooze(row, jittered(REFUSED)).await,
            Err(_) => {
                let read = || async {
                    let mut txn = self.store.begin(self.settings.handler_timeout).await?;
                    let claim = self.store.existing_claims(&mut txn, &[&row.identity], false).await?.pop();
                    self.store.rollback(txn).await?;
                    Ok(claim)
                };
                let claim = self.outage.retry_until_answered(&self.stop, read).await.flatten().flatten();
                // Without a date, it is a dead letter, which another process has made of it since, or it runs there.
                claim.is_some_and(|claim| claim.age.is_some()).then_some(Outcome::Processed)
            }
        }
    }

    /// Records the result of a row. `tries`: how often that was tried before, if the row waits in this process, outside the
    /// slots. Such a row uses the inbox's own connection.
    pub(super) async fn record_result(&self, row: &Row, result: &RowResult, tries: Option<usize>) -> Result<(), Ended> {
        let write = || async {
            let _own = match tries {
                Some(_) => Some(self.own_statements.lock().await),
                None => None,
            };
            self.store.record_result(row, result).await
        };
        let written = self.write_until_answered(row, tries, write).await;
        if written.is_err() {
            Span::current().record("idem.outcome", "unknown");
        }
        written
    }

    /// Does the work for a fetched row, and reports its outcome, if it has one.
    pub(crate) async fn report_row(&self, row: &Row, work: impl Future<Output = Option<Outcome>>) {
        let span = self.span_of(&row.handler, (&row.identity, &row.delivery));
        async {
            if let Some(outcome) = work.await {
                let Row { identity, delivery, .. } = row;
                self.emit(identity, delivery, &outcome);
            }
        }
        .instrument(span)
        .await;
        // An error says that no delivery waits.
        let _ = self.ran.send((row.identity.handler, row.identity.key.clone()));
    }

    /// Leaves a row for a while whose external call another version of the service has made: a handler without that call would
    /// ignore its answer, and may call by itself. One of such messages is logged each minute.
    pub(super) fn left_to_caller(&self, row: &Row) -> Ended {
        if self.left_to_callers.allows(LOG_INTERVAL) {
            tracing::warn!(
                handler = row.handler,
                id = row.id,
                show = %self.store.facts().show_row(Some(row.id)),
                "a message waits for a version of the service whose handler makes its external call"
            );
        }
        Ended::Park(Wait::After(jittered(REFUSED)))
    }

    /// Refunds the start of a row that has not run: its lease was lost, or it waits in this process. That is tried once: a refund
    /// that got no answer may have been written, and a second one would take the start of another run.
    pub(super) async fn refund_start(&self, row: &Row) -> Option<Outcome> {
        if let Err(fault) = self.store.record_result(row, &RowResult::Refunded).await {
            self.outage.report(&fault);
            tracing::debug!(id = row.id, error = %fault, "it is not known whether the start was refunded");
        }
        None
    }

    /// Reports a row that the inbox has made dead because processes ended on it.
    pub(super) async fn report_crashed(&self, row: &Row) {
        // A run would name the key in its span; here none has begun.
        let error = format!("the message with the key {}: {}", row.identity.key, row.error);
        let failure = Failure { attempts: row.attempts, ..Failure::new(Err(Reason::Crashed), error) };
        self.report_row(row, async { Some(failure.logged(self.store.facts(), row.id)) }).await;
    }
}
