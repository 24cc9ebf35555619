//! The acker of the in-process broker.

use std::sync::Arc;

use idem_core::{Acker, BoxError, Settled};

use super::shared::Shared;

/// Settles one delivery of the in-process broker. An ack returns [`Settled::Confirmed`].
pub struct QueueAcker {
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<str>,
    // Never reused for another delivery, so that a late ack cannot settle anything else.
    pub(super) tag: u64,
}

impl Acker for QueueAcker {
    async fn ack(self) -> Result<Settled, BoxError> {
        Ok(self.shared.change(|state| state.ack(&self.queue, self.tag)))
    }

    fn stored(&mut self) {
        self.shared.change(|state| state.stored(&self.queue));
    }

    async fn release(self) -> Result<Settled, BoxError> {
        Ok(self.shared.change(|state| state.release(&self.queue, self.tag)))
    }

    fn is_live(&self) -> bool {
        self.shared.change(|state| state.is_unsettled(&self.queue, self.tag))
    }
}

impl std::fmt::Debug for QueueAcker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueueAcker").field("queue", &self.queue).field("tag", &self.tag).finish_non_exhaustive()
    }
}
