//! Deliveries whose codec has to fetch something before it can decode them.

use crate::runtime::{Ended, FORGOTTEN, Pipeline, Turn, refused_wait, warn_of_unprepared};
use crate::{Delivery, Store};

impl<S: Store> Pipeline<S> {
    /// Waits until the codec is prepared for this delivery or has shown that it can never decode it, or until it may be tried
    /// again. The delivery is unacked, uncharged and in its place meanwhile, since without a decoded message there is no key to
    /// store it under.
    ///
    /// Cancel safe: a dropped preparation starts again when the delivery comes again.
    pub(super) async fn prepared(&self, delivery: &mut Delivery) {
        let beside = self.suspect_lock.direct().await;
        let takers: Vec<_> = self.routes.takers(delivery).collect();
        let route = self.unprepared(&takers, delivery);
        drop(beside);
        let Some(route) = route else { return };
        let preparation = &delivery.rare().preparation;
        let tries = preparation.tries();
        if tries > 0 {
            // Codecs that forget, or make each other forget, must not ask without end.
            if preparation.was_for(route.id) {
                warn_of_unprepared(delivery, tries, FORGOTTEN);
            }
            tokio::time::sleep(refused_wait(tries - 1)).await;
        }
        let prepared = match self.preparations.turn(route.id) {
            Ok(turn) => self.prepare(turn, route, delivery, None).await,
            // What the other message fetches may be all that this one needs.
            Err(delay) => Err(Ended::Park(Turn::After(delay))),
        };
        let undecodable = match prepared {
            Err(Ended::Failed(failure)) => Some(failure.error),
            Err(Ended::Park(Turn::After(delay))) => return tokio::time::sleep(delay).await,
            _ => None,
        };
        delivery.rare_mut().preparation.ended(route.id, tries + 1, undecodable);
    }
}
