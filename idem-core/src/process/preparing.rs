//! Deliveries whose codec has to fetch something before it can decode them.

use crate::runtime::{Carried, FORGOTTEN, Pipeline, refused_wait};
use crate::{Acker, BoxError, Delivery, PrepareError, Store};

use super::Waiting;

impl<S: Store> Pipeline<S> {
    /// Takes a delivery out of its lane until its codec is prepared for it. It is held like one that the database
    /// refuses: unacked, uncharged and in its place, since without a decoded message there is no key to store it under.
    pub(super) async fn leave_to_prepare<A: Acker>(
        &self,
        delivery: Box<Delivery>,
        acker: A,
        carried: Carried,
    ) -> Option<Waiting<A>> {
        self.meters(&delivery).held();
        if self.draining.has_begun() {
            self.release(acker).await;
            return None;
        }
        Some(Waiting::Preparation(delivery, acker, carried))
    }

    /// Waits until the codec is prepared for this delivery, or has shown that it can never decode it. Returns `false`
    /// if the worker drains or the delivery is lost.
    pub(super) async fn prepared<A: Acker>(&self, delivery: &mut Delivery, acker: &mut A) -> bool {
        self.unless_over(acker, self.prepare_for(delivery)).await
    }

    /// Cancel safe: a dropped preparation starts again when the delivery comes again.
    async fn prepare_for(&self, delivery: &mut Delivery) {
        let beside = self.suspect_lock.direct().await;
        let route = self.unprepared(delivery);
        drop(beside);
        let Some(route) = route else { return };
        let mut tries = delivery.rare().preparation.tries();
        let mut failure: Option<BoxError> = delivery.rare().preparation.was_for(route.id).then(|| FORGOTTEN.into());
        if tries > 0 && failure.is_none() {
            // Codecs that make each other forget must not ask without end.
            tokio::time::sleep(refused_wait(tries - 1)).await;
        }
        loop {
            if let Some(error) = failure.take() {
                self.warn_of_unprepared(delivery, tries, &crate::error::text(error.as_ref()));
                tokio::time::sleep(refused_wait(tries - 1)).await;
            }
            tries += 1;
            match self.prepare(route, delivery).await {
                Ok(()) => return delivery.rare_mut().preparation.ended(route.id, tries, None),
                Err(PrepareError::Undecodable(error)) => {
                    let why = crate::error::text(error.as_ref());
                    return delivery.rare_mut().preparation.ended(route.id, tries, Some(why));
                }
                Err(PrepareError::Unavailable(error)) => failure = Some(error),
            }
        }
    }
}
