//! Permits to use one more connection.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::runtime::Pipeline;
use crate::{Delivery, DeliveryOrder, Store};

impl<S: Store> Pipeline<S> {
    /// Waits for permission to use one more connection. It comes from `room` if there is one. Otherwise only deliveries
    /// that are stored outside the lanes need a permit, since lanes have connections: redelivered messages without an
    /// order, and all messages with `.inbox()`.
    pub(super) async fn room<'a>(
        &'a self,
        room: Option<&'a Semaphore>,
        delivery: &Delivery,
    ) -> Option<SemaphorePermit<'a>> {
        if let Some(room) = room {
            return room.acquire().await.ok();
        }
        let beside_lanes = self.settings.order == DeliveryOrder::None && self.stores_first(delivery);
        if beside_lanes { self.single_stores.acquire().await.ok() } else { None }
    }

    /// Whether a delivery is stored in the inbox before it runs: each one with `.inbox()`, otherwise one that the broker has
    /// delivered before, because a process may have died on it.
    pub(super) fn stores_first(&self, delivery: &Delivery) -> bool {
        self.settings.inbox || delivery.redelivered()
    }
}
