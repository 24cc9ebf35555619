//! Deliveries that leave their lane because the database refuses the rows written for them.

use std::time::Duration;

use crate::runtime::{Carried, Held, Pipeline, warn_of_refusal};
use crate::{Acker, BoxError, Delivery, Store};

use super::Waiting;

impl<S: Store> Pipeline<S> {
    /// Removes a delivery that the database refuses from its lane.
    pub(crate) async fn set_aside<A: Acker>(
        &self,
        mut delivery: Box<Delivery>,
        acker: A,
        carried: Carried,
        error: BoxError,
    ) -> Option<Waiting<A>> {
        self.meters(&delivery).held();
        let tries = delivery.rare_mut().refused.again(|| Held::new(&self.outage));
        warn_of_refusal(&delivery, tries, error.as_ref());
        if self.draining.has_begun() {
            self.release(acker).await;
            return None;
        }
        Some(Waiting::Refused(delivery, acker, carried))
    }

    /// Waits for `wait`, and for the end of an outage, before a delivery that the database refused is tried again.
    /// Returns `false` if the worker drains or the delivery is lost.
    pub(crate) async fn refused<A: Acker>(&self, acker: &mut A, wait: Duration) -> bool {
        let wait = async {
            tokio::time::sleep(wait).await;
            self.outage.over().await;
        };
        self.unless_over(acker, wait).await
    }
}
