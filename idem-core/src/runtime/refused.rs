//! Deliveries that the database refuses one by one.

use std::sync::Arc;

use crate::BoxError;

use super::Outage;

/// After so many tries in a row without an answer, a delivery leaves its lane to others.
pub(crate) const UNANSWERED: usize = 3;

pub(crate) fn unanswered() -> BoxError {
    "there was no answer, again and again, although the database answers others".into()
}

/// One delivery that counts as refused, for as long as this lives.
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
