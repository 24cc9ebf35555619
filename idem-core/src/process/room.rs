//! Room for one more connection.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::runtime::Pipeline;
use crate::{Delivery, DeliveryOrder, Store};

impl<S: Store> Pipeline<S> {
    /// Room for one more connection. The caller's room, where there is one; else that of what is stored beside the lanes,
    /// which have connections of their own: redelivered messages in no order, and all messages with `.inbox()`.
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
