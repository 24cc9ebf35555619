//! Deliveries that are taken out of their lane, since the database refuses what is written for them.

use std::time::Duration;

use crate::runtime::{Held, Pipeline, Place, warn_of_refusal};
use crate::{Acker, BoxError, Delivery, Store};

use super::Waiting;

impl<S: Store> Pipeline<S> {
    /// Takes a delivery out of its lane that the database refuses. One whose handler has failed is stored before that runs
    /// again, as one on which a process has died is: its failure could not be recorded.
    pub(crate) async fn set_aside<A: Acker>(
        &self,
        mut delivery: Delivery,
        acker: A,
        place: Option<Place>,
        ran: bool,
        error: BoxError,
    ) -> Option<Waiting<A>> {
        delivery.redelivered |= ran;
        self.meters(&delivery).held();
        let tries = delivery.refused.again(|| Held::new(&self.outage));
        warn_of_refusal(&delivery, tries, error.as_ref());
        if self.draining.is_cancelled() {
            self.release(acker).await;
            return None;
        }
        Some(Waiting::Refused(delivery, acker, place))
    }

    /// Waits for so long before a delivery that the database has refused is tried again. `false` as with its turn.
    pub(crate) async fn refused<A: Acker>(&self, acker: &mut A, wait: Duration) -> bool {
        self.extend_at_once(acker).await;
        let wait = async {
            tokio::time::sleep(wait).await;
            self.outage.over().await;
        };
        self.unless_over(acker, wait).await
    }

    /// Extends the lease of a delivery before a wait: many short waits would each begin the time anew that passes before the
    /// next extension.
    pub(super) async fn extend_at_once<A: Acker>(&self, acker: &mut A) {
        if acker.lease().is_some()
            && let Err(error) = acker.extend().await
        {
            tracing::debug!(error, "the lease of a delivery was not extended");
        }
    }
}
