//! Deliveries that several handlers take.

use tokio::sync::Semaphore;

use crate::runtime::{KeyTickets, Pipeline, Progress, Shared};
use crate::{Acker, Delivery, Store};

impl<S: Store> Pipeline<S> {
    /// Stores a delivery for each of its handlers. None of them runs it directly: if one failed, the delivery could
    /// neither be acked nor run again for that one only.
    pub(super) async fn fan_out(
        &self,
        room: Option<&Semaphore>,
        delivery: &Delivery,
        keys: &mut KeyTickets,
    ) -> Progress {
        let routes: Vec<_> = self.routes.takers(delivery).collect();
        let beside = self.suspect_lock.direct().await;
        let shares = self.share(delivery, &routes);
        drop(beside);
        // In claim order, like a batch, so that no two deliveries wait for each other.
        let in_order = shares.known.iter().map(|known| (known.identity.handler, &known.identity.key));
        if !keys.take(&self.key_locks, in_order) {
            return Progress::Behind;
        }
        let _room = self.room(room, delivery).await;
        self.store_shares(delivery, shares).await
    }

    /// Settles a delivery that is stored for each of its handlers, and reports the outcome of each.
    pub(super) async fn settle_shared<A: Acker>(&self, mut acker: A, delivery: &Delivery, shared: &Shared) {
        if shared.is_new {
            acker.stored();
        }
        shared.outcomes.iter().for_each(|(_, outcome)| self.brake.fit(outcome));
        self.settle(acker).await;
        for (handler, outcome) in &shared.outcomes {
            self.emit(self.routes.meters(*handler), delivery, outcome);
        }
    }
}
