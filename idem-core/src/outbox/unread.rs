//! Outboxes that no relay looks at, for example because its name is misspelt.

use std::time::Duration;

use metrics::gauge;

use crate::store::OutboxStats;
use crate::telemetry::OUTBOX_COUNTED;

/// For how long no relay may have looked at an outbox with messages.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether an outbox was unread when its stats were last read.
#[derive(Debug, Default)]
pub(crate) struct Unread(bool);

impl Unread {
    /// Logs and counts the messages of this outbox if no relay has looked at it for a minute.
    pub(crate) fn look(&mut self, outbox: &str, stats: &OutboxStats) {
        let waiting = stats.waiting.min(OUTBOX_COUNTED);
        let is_seen = stats.relay_seen.is_some_and(|seen| seen <= PATIENCE);
        let oldest = stats.oldest.filter(|oldest| *oldest > PATIENCE && !is_seen);
        if let Some(oldest) = oldest.filter(|_| !self.0) {
            tracing::warn!(
                outbox,
                waiting,
                ?oldest,
                "no relay has looked at the messages of this outbox for a minute: run `Relay::new({outbox:?}, ..)`, or correct \
                 the name"
            );
        }
        if self.0 || oldest.is_some() {
            let unread = if oldest.is_some() { waiting } else { 0 };
            gauge!("idem_outbox_unread", "outbox" => outbox.to_owned()).set(unread as f64);
        }
        self.0 = oldest.is_some();
    }
}
