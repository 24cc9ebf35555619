//! Outboxes that no relay looks at, for example because its name is misspelt.

use std::collections::BTreeSet;
use std::time::Duration;

use metrics::gauge;
use tokio::time::timeout;

use crate::Store;

use crate::telemetry::OUTBOX_COUNTED;

/// For how long no relay may have looked at an outbox with messages.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long the answer may take.
const ASK: Duration = Duration::from_secs(5);

/// The outboxes that were unread when it looked last.
#[derive(Debug, Default)]
pub(crate) struct Unread(BTreeSet<String>);

impl Unread {
    /// Logs and counts the messages that no relay has looked at for a minute; of all outboxes of the database, or of this one.
    pub(crate) async fn check<S: Store>(&mut self, store: &S, only: Option<&str>) {
        // A database that does not answer is logged by others.
        let Ok(Ok(found)) = timeout(ASK, store.unread_outboxes(PATIENCE, OUTBOX_COUNTED)).await else { return };
        let mut now = BTreeSet::new();
        for unread in found.into_iter().filter(|unread| only.is_none_or(|only| only == unread.name)) {
            set(&unread.name, unread.waiting);
            if !self.0.contains(&unread.name) {
                let (outbox, waiting, oldest) = (&unread.name, unread.waiting, unread.oldest);
                tracing::warn!(
                    outbox,
                    waiting,
                    ?oldest,
                    show = %store.facts().command(&["doctor"], &[]),
                    "no relay has looked at the messages of this outbox for a minute: run `Relay::new({outbox:?}, ..)`, or \
                     correct the name"
                );
            }
            now.insert(unread.name);
        }
        self.0.difference(&now).for_each(|read| set(read, 0));
        self.0 = now;
    }
}

fn set(outbox: &str, messages: u64) {
    gauge!("idem_outbox_unread", "outbox" => outbox.to_owned()).set(messages as f64);
}
