//! Waiters for rows of the inbox.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::Key;
use crate::store::{HandlerId, Identity};

/// The rows of the inbox that ordered deliveries of this process wait for. A run wakes only the waiters of its row;
/// each of them then queries the database.
#[derive(Default)]
pub(crate) struct Rows {
    awaited: Mutex<Awaited>,
    /// Held while a waiter queries the database, so that any number of waiters needs only one connection.
    pub(crate) look: tokio::sync::Mutex<()>,
}

type Awaited = HashMap<(HandlerId, Key), Arc<Notify>>;

impl Rows {
    /// Returns a wait that is notified whenever this row has run in this process.
    pub(crate) fn watch(&self, identity: &Identity) -> Watch<'_> {
        let row = (identity.handler, identity.key.clone());
        let ran = self.awaited.lock().entry(row.clone()).or_default().clone();
        Watch { rows: self, row, ran }
    }

    /// Notifies the waiters that this row has run in this process, whatever its result.
    pub(crate) fn ran(&self, identity: &Identity) {
        if let Some(ran) = self.awaited.lock().get(&(identity.handler, identity.key.clone())) {
            ran.notify_waiters();
        }
    }
}

/// A wait for one row, which ends when it is dropped.
pub(crate) struct Watch<'a> {
    rows: &'a Rows,
    row: (HandlerId, Key),
    pub(crate) ran: Arc<Notify>,
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        let mut awaited = self.rows.awaited.lock();
        // One reference is in the map and one is this: there are no other waiters. New references are created under the
        // lock.
        if Arc::strong_count(&self.ran) == 2 {
            awaited.remove(&self.row);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;
    use crate::Fingerprint;

    fn identity(key: &str) -> Identity {
        Identity { handler: HandlerId(1), key: Key::of(key).unwrap(), fingerprint: Fingerprint::of(b"") }
    }

    #[test]
    fn only_those_who_wait_for_a_row_are_woken_by_it() {
        let rows = Rows::default();
        let (first, twin, other) = (rows.watch(&identity("a")), rows.watch(&identity("a")), rows.watch(&identity("b")));
        let mut waits = [&first, &twin, &other].map(|watch| Box::pin(watch.ran.notified()));
        for wait in &mut waits {
            wait.as_mut().enable();
        }
        rows.ran(&identity("a"));
        let woken = waits.map(|wait| wait.now_or_never().is_some());
        assert_eq!(woken, [true, true, false]);
        drop((first, other));
        assert_eq!(rows.awaited.lock().len(), 1);
        drop(twin);
        assert!(rows.awaited.lock().is_empty());
    }
}
