//! Deliveries that several handlers take.

use tokio::sync::Semaphore;

use crate::runtime::{Ended, KeyTickets, Pipeline, Wait};
use crate::take_over::Shared;
use crate::{Acker, Delivery, Store};

impl<S: Store> Pipeline<S> {
    /// Stores a delivery for each of its handlers. None of them runs it directly: if one failed, the delivery could
    /// neither be acked nor run again for that one only.
    ///
    /// If the codec of one of them has to prepare first, stores it for those whose keys are known, and leaves it to the
    /// preparation. Without its key there is no telling two messages apart, so it must not be stored for that one.
    pub(super) async fn fan_out(
        &self,
        room: Option<&Semaphore>,
        delivery: &Delivery,
        keys: &mut KeyTickets,
    ) -> Result<Shared, Ended> {
        let routes: Vec<_> = self.routes.takers(delivery).collect();
        let beside = self.suspect_lock.direct().await;
        let (mut entries, is_unprepared) = self.shares(delivery, &routes);
        drop(beside);
        if is_unprepared {
            // The unfit are written with the rest, so that they are counted once.
            entries.retain(|entry| entry.identity.has_key());
        }
        // In claim order, like a batch, so that no two deliveries wait for each other.
        let known = entries.iter().filter(|entry| entry.identity.has_key());
        if !keys.take(&self.key_locks, known.map(|entry| (entry.identity.handler, &entry.identity.key))) {
            return Err(Ended::Park(Wait::Key));
        }
        if entries.is_empty() {
            return Err(Ended::Park(Wait::Codec));
        }
        let _room = self.room(room, delivery).await;
        let shared = self.store_shared(&entries).await?;
        if is_unprepared { Err(Ended::Park(Wait::Codec)) } else { Ok(shared) }
    }

    /// Settles a delivery that is stored for each of its handlers, and reports the outcome of each.
    pub(super) async fn settle_shared<A: Acker>(&self, mut acker: A, delivery: &Delivery, shared: &Shared) {
        if shared.is_new {
            acker.stored();
        }
        shared.outcomes.iter().for_each(|(_, outcome)| self.brake.fit(outcome));
        self.settle(acker).await;
        for (identity, outcome) in &shared.outcomes {
            self.emit(self.routes.get(identity.handler), identity.known_key(), delivery, outcome);
        }
    }
}
