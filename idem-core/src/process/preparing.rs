//! Deliveries whose codec has to fetch something before it can decode them.

use crate::runtime::{FORGOTTEN, Pipeline, refused_wait};
use crate::{BoxError, Delivery, PrepareError, Store};

impl<S: Store> Pipeline<S> {
    /// Waits until the codec is prepared for this delivery, or has shown that it can never decode it. It is unacked, uncharged
    /// and in its place meanwhile, since without a decoded message there is no key to store it under.
    ///
    /// Cancel safe: a dropped preparation starts again when the delivery comes again.
    pub(crate) async fn prepare_for(&self, delivery: &mut Delivery) {
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
