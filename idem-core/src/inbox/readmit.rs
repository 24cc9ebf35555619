//! Replayed rows that have no key. They go back through decode and key.

use std::time::Duration;

use crate::run::Failure;
use crate::runtime::{Pipeline, Running};
use crate::store::Row;
use crate::{Outcome, Store};

impl<S: Store> Pipeline<S> {
    /// Replaces a row without a key by one with a claim for each handler that takes it now, which runs like any other; or
    /// its message is a duplicate or conflict of one that was taken over meanwhile. Reports the outcome of each handler.
    pub(super) async fn readmit(&self, row: &Row, running: &Running) -> Option<Outcome> {
        let Some(user_code) = running.user_code() else { return self.snooze(row, Duration::ZERO).await };
        let routes = self.routes.takers_of_row(row);
        let (mut entries, is_unprepared) = self.shares(&row.delivery, &routes);
        drop(user_code);
        if is_unprepared {
            return self.leave_to_prepare_row(row).await;
        }
        // One that no other handler can take either is dead as it is.
        let unfit = match (&routes[..], &entries[..]) {
            ([], _) => Some(Failure::unfit(self.routes.untaken(&row.delivery))),
            ([_], [entry]) if !entry.identity.has_key() => Some(entry.failure.clone().into_owned()),
            _ => None,
        };
        if let Some(Failure { next: Err(reason), error, .. }) = unfit {
            return self.reject(row, reason, error).await;
        }
        entries.iter_mut().for_each(|entry| entry.replaces = Some(row));
        let shared = match self.store_shared(&entries).await {
            Ok(shared) => shared,
            Err(ended) => return self.record(row, ended).await,
        };
        for (identity, outcome) in shared.outcomes {
            self.emit(self.routes.get(identity.handler), identity.known_key(), &row.delivery, &outcome);
        }
        None
    }
}
