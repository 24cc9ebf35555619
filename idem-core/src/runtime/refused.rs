//! Deliveries that the database refuses one by one.

use std::sync::Arc;

use crate::{BoxError, Delivery};

use super::outage::Outage;

/// After this many tries in a row without an answer, a delivery leaves its lane to others. If another transaction holds
/// its claim for as long, the database is pinged.
pub(crate) const UNANSWERED: usize = 3;

pub(crate) fn unanswered() -> BoxError {
    "the database repeatedly did not answer for this message, although it answers for others".into()
}

/// A delivery that counts as refused while this exists.
pub(crate) struct Held(Arc<Outage>);

impl Held {
    pub(crate) fn new(outage: &Arc<Outage>) -> Self {
        if outage.refused.add() {
            outage.show();
        }
        Self(outage.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.refused.remove() {
            self.0.show();
        }
    }
}

/// Logs the message, because it is the one to investigate.
pub(crate) fn warn_of_refusal(delivery: &Delivery, tries: usize, error: &(dyn std::error::Error + 'static)) {
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
