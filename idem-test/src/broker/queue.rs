//! A source of the in-process broker.

use std::sync::Arc;
use std::time::Duration;

use idem_core::{BoxError, Delivery, DeliveryOrder, Lag, ReplayWindow, Source, SubscribeOptions};

use super::shared::Shared;
use super::{Counts, QueueAcker};

/// A queue of the in-process broker: the source that a worker consumes, and the counters and signals for a test.
///
/// Clones are further sources of the same queue, each with a separate subscription. Dropping a source ends its
/// subscription and returns its unsettled messages to the queue.
///
/// ```
/// # use idem_core::{Acker, BoxError, Source, SubscribeOptions};
/// # use idem_test::Broker;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// # let broker = Broker::new();
/// let mut orders = broker.queue("orders");
/// let watched = orders.clone();
/// tokio::spawn(async move {
///     orders.subscribe(SubscribeOptions::new("billing", 1)).await?;
///     let (_, acker) = orders.next().await?;
///     acker.ack().await
/// });
/// broker.publish("orders", "paid");
/// watched.settled(1).await;
/// assert_eq!(watched.counts().acks, 1);
/// # Ok(()) }
/// ```
pub struct Queue {
    shared: Arc<Shared>,
    name: Arc<str>,
    subscription: Option<Subscription>,
}

#[derive(Clone, Copy)]
struct Subscription {
    number: u64,
    capacity: usize,
    order: DeliveryOrder,
    drained: bool,
}

impl Queue {
    pub(super) fn new(shared: Arc<Shared>, name: Arc<str>) -> Self {
        Self { shared, name, subscription: None }
    }

    /// The counters of the queue, and how many messages it holds.
    pub fn counts(&self) -> Counts {
        self.shared.look(|state| state.counts(&self.name))
    }

    /// Waits until at least `acks` deliveries of the queue have been acked.
    pub async fn settled(&self, acks: usize) {
        self.shared.until(|state| state.counts(&self.name).acks >= acks).await;
    }

    /// Waits until at least `deliveries` deliveries have been handed out.
    pub async fn delivered(&self, deliveries: usize) {
        self.shared.until(|state| state.counts(&self.name).deliveries >= deliveries).await;
    }

    /// Waits until at least `releases` deliveries have been released in time.
    #[doc(hidden)]
    pub async fn released(&self, releases: usize) {
        self.shared.until(|state| state.counts(&self.name).releases >= releases).await;
    }

    /// Waits until each message that was not acked is in the queue and none is handed out. Returns their number.
    #[doc(hidden)]
    pub async fn returned(&self) -> usize {
        let are_back = |counts: Counts| counts.ready == counts.published - counts.acks && counts.unsettled == 0;
        self.shared.until(|state| are_back(state.counts(&self.name))).await;
        self.counts().ready
    }

    /// Waits until the queue is empty and nothing is unsettled.
    pub async fn idle(&self) {
        let is_idle = |counts: Counts| counts.ready == 0 && counts.unsettled == 0;
        self.shared.until(|state| is_idle(state.counts(&self.name))).await;
    }

    fn end(&mut self) {
        if let Some(Subscription { number, .. }) = self.subscription.take() {
            self.shared.change(|state| state.end(number));
        }
    }
}

impl Source for Queue {
    type Acker = QueueAcker;

    fn system(&self) -> &'static str {
        "in_process"
    }

    fn name(&self) -> &str {
        &self.name
    }

    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        self.end();
        let number = self.shared.change(|state| state.subscribe()).ok_or("the broker refuses connections")?;
        self.subscription =
            Some(Subscription { number, capacity: options.max_unsettled.into(), order: options.order, drained: false });
        Ok(())
    }

    fn replay_window(&self) -> ReplayWindow {
        self.shared.look(|state| state.replay_window).unwrap_or(ReplayWindow::Unknown)
    }

    fn unsettled_limit(&self) -> Option<Duration> {
        self.shared.look(|state| state.unsettled_limit)
    }

    /// A message has a position only if its publication sets one, so a handler whose key is the position is refused.
    fn has_positions(&self) -> bool {
        false
    }

    /// Reading it fails once the connection of this subscription is lost.
    fn lag(&self) -> Option<Lag> {
        let number = self.subscription?.number;
        let (shared, name) = (self.shared.clone(), self.name.clone());
        Some(Lag::new(move || {
            let ready = shared.look(|state| state.is_subscribed(number).then(|| state.counts(&name).ready));
            let lag =
                ready.map(|ready| vec![(name.clone(), ready as u64)]).ok_or_else(|| "the connection was lost".into());
            std::future::ready(lag)
        }))
    }

    async fn next(&mut self) -> Result<(Delivery, QueueAcker), BoxError> {
        let subscription = self.subscription.filter(|subscription| !subscription.drained);
        let Some(Subscription { number, capacity, order, .. }) = subscription else {
            return Err("the queue is not subscribed to".into());
        };
        let handed_out = self.shared.when(|state| {
            if !state.is_subscribed(number) {
                return Some(None);
            }
            state.hand_out(&self.name, number, capacity, order).map(Some)
        });
        let handed_out = handed_out.await.ok_or("the connection was lost")?;
        let (shared, queue) = (self.shared.clone(), self.name.clone());
        let acker = QueueAcker { shared, queue, tag: handed_out.tag };
        Ok((handed_out.delivery, acker))
    }

    /// Nothing is buffered here: messages that `next` has not taken are still in the queue.
    async fn drain(&mut self) {
        if let Some(subscription) = &mut self.subscription {
            subscription.drained = true;
            let number = subscription.number;
            self.shared.change(|state| state.drain(number));
        }
    }

    async fn close(&mut self) {
        self.end();
    }
}

impl Clone for Queue {
    fn clone(&self) -> Self {
        Self::new(self.shared.clone(), self.name.clone())
    }
}

impl Drop for Queue {
    fn drop(&mut self) {
        self.end();
    }
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue").field("name", &self.name).finish_non_exhaustive()
    }
}
