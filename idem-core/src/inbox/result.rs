//! Records the results of rows.

use tracing::Span;

use crate::Store;
use crate::runtime::{Pipeline, warn_of_refusal};
use crate::store::{Row, RowResult};

impl<S: Store> Pipeline<S> {
    /// Records the result of a row. Returns `false` if that was not written: the row is another process's by now, the
    /// worker stops, or the database refuses it. A refused row is given back, uncharged, and waits longer each time; if
    /// that is refused as well, its lease expires.
    pub(super) async fn record_result(&self, row: &Row, note: &RowResult) -> bool {
        let record = async |note: &RowResult| {
            self.outage.insist_unless_refused(&self.stop, || self.store.record_result(row, note)).await
        };
        let noted = match record(note).await {
            Some(Ok(noted)) => noted,
            Some(Err(error)) => {
                let (tries, due) = self.refusals.count(row.id);
                warn_of_refusal(&row.delivery, tries, error.as_ref());
                if matches!(note, RowResult::Failed { .. } | RowResult::Broke { .. } | RowResult::Dead { .. }) {
                    record(&RowResult::GivenBack { due }).await;
                }
                false
            }
            None => false,
        };
        if !noted {
            Span::current().record("idem.outcome", "unknown");
        }
        noted
    }
}
