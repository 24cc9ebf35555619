//! Records and reports the results of rows.

use std::time::Duration;

use tracing::{Instrument, Span};

use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Wait, jittered};
use crate::store::{Row, RowResult};
use crate::{Outcome, Reason, Store, telemetry};

/// When a row is looked at again, at the earliest, that is left to another version of the service.
const OTHER_VERSION: Duration = Duration::from_secs(10);

/// When a row is tried again that the database refuses: an operator has to fix something first.
pub(super) const REFUSED: Duration = Duration::from_secs(10);

/// The minimum interval between two log lines about rows that are left to another version.
const TELL: Duration = Duration::from_secs(60);

impl<S: Store> Pipeline<S> {
    /// Records the result of a row. Returns whether it was written. A refused row is given back for a while, uncharged; if that
    /// is refused as well, its lease expires.
    pub(super) async fn record_result(&self, row: &Row, result: &RowResult) -> bool {
        let written = self.try_to_record(row, result, None).await;
        if let Err(Ended::Park(_)) = &written
            && matches!(result, RowResult::Broke { .. } | RowResult::Dead { .. })
        {
            let _ = self.try_to_record(row, &RowResult::GivenBack { due: jittered(REFUSED) }, None).await;
        }
        written.is_ok()
    }

    /// Records the result of a row. `tries`: how often that was tried before, if the row waits in this process, outside the
    /// slots. Such a row uses the inbox's own connection.
    pub(super) async fn try_to_record(&self, row: &Row, result: &RowResult, tries: Option<usize>) -> Result<(), Ended> {
        let write = || async {
            let _own = match tries {
                Some(_) => Some(self.own_statements.lock().await),
                None => None,
            };
            self.store.record_result(row, result).await
        };
        let written = self.insist_for(row, tries, write).await;
        if written.is_err() {
            Span::current().record("idem.outcome", "unknown");
        }
        written
    }

    /// Does the work for a taken row, and reports its outcome, if it has one.
    pub(crate) async fn report_row(&self, row: &Row, work: impl Future<Output = Option<Outcome>>) {
        let span = telemetry::span(self.system, &self.consumer, &row.delivery);
        span.record("idem.handler", row.handler.as_str());
        span.record("idem.key", tracing::field::display(&row.identity.key));
        async {
            if let Some(outcome) = work.await {
                let Row { identity, delivery, .. } = row;
                self.emit(self.routes.get(identity.handler), identity.known_key(), delivery, &outcome);
            }
        }
        .instrument(span)
        .await;
        // An error says that no delivery waits.
        let _ = self.ran.send((row.identity.handler, row.identity.key.clone()));
    }

    /// Makes a row dead that can never run as it is.
    pub(super) async fn reject(&self, row: &Row, reason: Reason, error: String) -> Option<Outcome> {
        let result = RowResult::Dead { reason, error: error.clone() };
        self.record_result(row, &result).await.then(|| rejected(row, reason, error))
    }

    /// Gives back a row whose handler has not run, for this time: none if a suspect comes first, or if the worker stops.
    pub(super) async fn snooze(&self, row: &Row, due: Duration) -> Option<Outcome> {
        self.record_result(row, &RowResult::GivenBack { due }).await;
        None
    }

    /// Leaves a row for a while whose external call another version of the service has made: a handler without that call would
    /// ignore its answer, and may call by itself. One of such messages is logged each minute.
    pub(super) fn left_to_caller(&self, row: &Row) -> Ended {
        if self.left_to_callers.allows(TELL) {
            tracing::warn!(
                id = row.id,
                handler = row.handler,
                "a message waits for a version of the service whose handler makes its external call"
            );
        }
        Ended::Park(Wait::After(jittered(OTHER_VERSION)))
    }

    /// Refunds the start of a row that has not run: its lease was lost, or it waits in this process. If that fails, it is
    /// repeated for at most a lease; long after that, the start may have made the row a dead letter. A refund without an answer is not repeated: it may have
    /// been written, and a second one would take the start of another run. The ping in front of it shows whether there
    /// will be an answer.
    pub(super) async fn refund_start(&self, row: &Row) -> Option<Outcome> {
        let refund = || async {
            self.store.ping().await?;
            match self.store.record_result(row, &RowResult::Refunded).await {
                Err(fault) if fault.is_answered() => Err(fault),
                answer => Ok(answer.map(drop)),
            }
        };
        let refunded = tokio::time::timeout(self.settings.lease, self.outage.insist(&self.stop, refund)).await;
        match refunded {
            Ok(Some(Ok(()))) => {}
            Ok(Some(Err(fault))) => {
                self.outage.report(&fault);
                tracing::debug!(id = row.id, error = %fault, "it is not known whether the start was refunded");
            }
            Ok(None) | Err(_) => tracing::debug!(id = row.id, "the start was not refunded"),
        }
        None
    }

    /// Reports a row that the inbox has made dead because processes ended on it.
    pub(super) async fn report_crashed(&self, row: &Row) {
        // A run would name the key in its span; here none has begun.
        let error = format!("the message with the key {}: {}", row.identity.key, row.error);
        self.report_row(row, async { Some(rejected(row, Reason::Crashed, error)) }).await;
    }
}

/// Logs a row that is dead without one more attempt, and returns its outcome.
pub(super) fn rejected(row: &Row, reason: Reason, error: String) -> Outcome {
    Failure { attempts: row.attempts, ..Failure::new(Err(reason), error) }.logged(row.id)
}
