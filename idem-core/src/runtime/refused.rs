//! What the database refuses to write for one message, although it works for others.

use std::sync::Arc;

use crate::Delivery;

use super::outage::Outage;

/// A delivery that counts as refused while this exists.
pub(crate) struct Refused(Arc<Outage>);

impl Refused {
    pub(crate) fn new(outage: &Arc<Outage>) -> Self {
        outage.count_refused(|refused| refused + 1);
        Self(outage.clone())
    }
}

impl Drop for Refused {
    fn drop(&mut self) {
        self.0.count_refused(|refused| refused.saturating_sub(1));
    }
}

/// Logs the message, because it is the one to investigate.
pub(crate) fn warn_of_refusal(delivery: &Delivery, tries: Option<usize>, error: &(dyn std::error::Error + 'static)) {
    tracing::warn!(
        source = delivery.source(),
        message_id = delivery.message_id(),
        position = delivery.position(),
        tries,
        error = crate::error::text(error),
        "the database refuses to write for a message; the message stays where it is, with the broker or in the inbox, and is \
         tried again: check the constraints and triggers on idem's tables, and the size of the message"
    );
}
