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
        let beside_lanes =
            self.settings.order == DeliveryOrder::None && (self.settings.inbox || delivery.redelivered());
        if beside_lanes { self.alone.acquire().await.ok() } else { None }
    }
}
