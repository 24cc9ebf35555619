//! Deliveries that several handlers take.

use std::time::Duration;

use tokio::sync::Semaphore;

use crate::park::Carried;
use crate::runtime::{Ended, Pipeline, Wait};
use crate::take_over::Shared;
use crate::{Delivery, Outcome, Store};

impl<S: Store> Pipeline<S> {
    /// Stores a delivery for each of its handlers, and leaves the outcomes in `shares`. None of them runs it directly: if one
    /// failed, the delivery could neither be acked nor run again for that one only.
    ///
    /// If the codec of one of them has to prepare first, stores it for those whose keys are known, and leaves it to the
    /// preparation. Without its key there is no telling two messages apart, so it must not be stored for that one.
    pub(super) async fn fan_out(&self, room: Option<&Semaphore>, delivery: &Delivery, carried: &mut Carried) -> Ended {
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
        if !carried.keys.take(&self.key_locks, known.map(|entry| (entry.identity.handler, &entry.identity.key))) {
            return Ended::Park(Wait::Key);
        }
        if entries.is_empty() {
            return Ended::Park(Wait::Codec);
        }
        let _room = self.room(room, delivery).await;
        match self.store_shared(&entries).await {
            Ok(_) if is_unprepared => Ended::Park(Wait::Codec),
            Ok(Shared { outcomes, is_new }) => {
                carried.shares = outcomes;
                Ended::Done(if is_new { Outcome::scheduled(0, Duration::ZERO) } else { Outcome::Duplicate })
            }
            Err(ended) => ended,
        }
    }
}
