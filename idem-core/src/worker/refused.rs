//! Deliveries that the database refuses one by one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use crate::pipeline::Pipeline;
use crate::{Acker, BoxError, Delivery, Store};

use super::{Outage, Place, Waiting, refused_wait};

/// How often the database has refused what idem writes for a delivery. From the first time on the delivery counts as held,
/// for as long as this lives. A copy of the delivery, which handlers have, was never refused.
#[derive(Default)]
pub(crate) struct Refused {
    tries: usize,
    held: Option<Held>,
}

impl Refused {
    /// Once more. Answers how often in all.
    pub(crate) fn again(&mut self, outage: &Arc<Outage>) -> usize {
        self.held.get_or_insert_with(|| Held::new(outage.clone()));
        self.tries += 1;
        self.tries
    }

    /// Whether it ever was.
    pub(crate) fn any(&self) -> bool {
        self.tries > 0
    }

    /// How long the delivery waits before its next try.
    pub(crate) fn wait(&self) -> Duration {
        refused_wait(self.tries.saturating_sub(1))
    }
}

impl Clone for Refused {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// After so many tries in a row without an answer, a delivery leaves its lane to others.
pub(crate) const UNANSWERED: usize = 3;

pub(crate) fn unanswered() -> BoxError {
    "there was no answer, again and again, although the database answers others".into()
}

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
        let tries = delivery.refused.again(&self.outage);
        self.warn_of_refusal(&delivery, tries, error.as_ref());
        if self.draining.is_cancelled() {
            self.release(acker).await;
            return None;
        }
        Some(Waiting::Refused(delivery, acker, place))
    }

    /// Names the message, since it is the one that has to be looked at.
    pub(crate) fn warn_of_refusal(&self, delivery: &Delivery, tries: usize, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(
            source = delivery.source(),
            message_id = delivery.message_id(),
            position = delivery.position(),
            tries,
            error = crate::error::text(error),
            "the database refuses what idem writes for a message; it is held, unacked, and tried again"
        );
    }

    /// Waits for so long before a delivery that the database has refused is tried again. `false` as with its turn.
    pub(crate) async fn refused<A: Acker>(&self, acker: &mut A, wait: Duration) -> bool {
        // At once: many short waits would each begin the time anew that passes before the next extension.
        if acker.lease().is_some()
            && let Err(error) = acker.extend().await
        {
            tracing::debug!(error, "the lease of a delivery was not extended");
        }
        let wait = async {
            tokio::time::sleep(wait).await;
            self.outage.over().await;
        };
        self.unless_over(acker, wait).await
    }
}

/// One delivery that is held.
struct Held(Arc<Outage>);

impl Held {
    fn new(outage: Arc<Outage>) -> Self {
        if outage.refused.add() {
            outage.show();
        }
        Self(outage)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.0.refused.remove() {
            self.0.show();
        }
    }
}

/// How many deliveries are refused, and how many there may be: as many as may be unsettled. Then no further one can be
/// taken.
pub(super) struct Count {
    count: AtomicUsize,
    most: usize,
}

impl Count {
    pub(super) fn of(most: usize) -> Self {
        Self { count: AtomicUsize::new(0), most }
    }

    pub(super) fn is_full(&self) -> bool {
        self.count.load(Relaxed) >= self.most
    }

    /// Answers whether it is full from now on.
    fn add(&self) -> bool {
        let full = self.count.fetch_add(1, Relaxed) + 1 == self.most;
        if full {
            tracing::error!(
                held = self.most,
                "the database refuses every message that is held, and no further one can be taken: look at constraints and \
                 triggers on idem's tables"
            );
        }
        full
    }

    /// Answers whether it was full until now.
    fn remove(&self) -> bool {
        self.count.fetch_sub(1, Relaxed) == self.most
    }
}
