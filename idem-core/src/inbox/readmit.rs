//! Replayed rows that have no key. They go back through decode and key.

use crate::Store;
use crate::run::Failure;
use crate::runtime::{Ended, Pipeline, Running, Wait};
use crate::store::Row;

impl<S: Store> Pipeline<S> {
    /// Replaces a row without a key by one with a claim for each handler that takes it now, which runs like any other; or
    /// its message is a duplicate or conflict of one that was taken over meanwhile. Reports the outcome of each handler, and then
    /// returns `None`; otherwise what has become of the row.
    pub(super) async fn readmit(&self, row: &Row, running: &Running) -> Option<Ended> {
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
}
