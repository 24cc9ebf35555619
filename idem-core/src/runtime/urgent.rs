//! Deliveries that the broker may soon drop, and permits that go to them first.

use tokio::sync::{Semaphore, SemaphorePermit, watch};

use crate::Delivery;

/// From this number of earlier deliveries on, a message is stored before others.
const URGENT: u32 = 5;

/// Returns whether a message has been delivered so often that it is stored before others: a broker may drop it after a
/// few more deliveries.
pub(crate) fn is_urgent(delivery: &Delivery) -> bool {
    delivery.delivery_count().is_some_and(|count| count >= URGENT)
}

/// Permits, each of which goes to an urgent delivery if one waits, and else to the one that has waited the longest.
pub(crate) struct Permits {
    permits: Semaphore,
    /// How many urgent deliveries wait.
    urgent: watch::Sender<usize>,
}

impl Permits {
    pub(crate) fn new(permits: usize) -> Self {
        Self { permits: Semaphore::new(permits), urgent: watch::Sender::new(0) }
    }

    /// Waits for a permit. Cancel safe.
    pub(crate) async fn acquire(&self, urgent: bool) -> Option<SemaphorePermit<'_>> {
        if urgent {
            let _waits = Waits::new(&self.urgent);
            return self.permits.acquire().await.ok();
        }
        loop {
            let permit = self.permits.acquire().await.ok()?;
            if *self.urgent.borrow() == 0 {
                return Some(permit);
            }
            // It has come in front of an urgent one: the semaphore hands out permits in the order of the waits.
            drop(permit);
            let _ = self.urgent.subscribe().wait_for(|urgent| *urgent == 0).await;
        }
    }
}

/// Counts an urgent delivery as waiting while this exists.
struct Waits<'a>(&'a watch::Sender<usize>);

impl<'a> Waits<'a> {
    fn new(urgent: &'a watch::Sender<usize>) -> Self {
        urgent.send_modify(|waits| *waits += 1);
        Self(urgent)
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|waits| *waits -= 1);
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::poll;

    use super::*;

    #[tokio::test]
    async fn a_permit_goes_to_an_urgent_delivery_first() {
        let permits = Permits::new(1);
        let held = permits.acquire(false).await;
        let (mut one, mut other) = (pin!(permits.acquire(false)), pin!(permits.acquire(false)));
        assert!(poll!(&mut one).is_pending() && poll!(&mut other).is_pending());
        let mut urgent = pin!(permits.acquire(true));
        assert!(poll!(&mut urgent).is_pending());
        drop(held);
        // Those that wait in front of it pass the permit on.
        assert!(poll!(&mut one).is_pending() && poll!(&mut other).is_pending());
        let held = urgent.await;
        assert!(held.is_some() && poll!(&mut one).is_pending() && poll!(&mut other).is_pending());
        drop(held);
        assert!(one.await.is_some() && other.await.is_some());
    }

    #[tokio::test]
    async fn an_urgent_delivery_that_gives_up_keeps_no_other_waiting() {
        let permits = Permits::new(1);
        let held = permits.acquire(false).await;
        let mut other = pin!(permits.acquire(false));
        {
            let mut urgent = pin!(permits.acquire(true));
            assert!(poll!(&mut urgent).is_pending() && poll!(&mut other).is_pending());
        }
        drop(held);
        assert!(other.await.is_some());
    }
}
