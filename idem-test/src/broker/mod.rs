//! An in-process queue broker for tests: FIFO queues, redelivery, and faults that the test injects.

mod acker;
mod counts;
mod publication;
mod queue;
mod shared;
mod sink;
mod state;

use std::sync::Arc;
use std::time::Duration;

use idem_core::ReplayWindow;
use serde::Serialize;

pub use acker::QueueAcker;
pub use counts::Counts;
pub use publication::Publication;
pub use queue::Queue;

use shared::Shared;

/// An in-process queue broker.
///
/// It behaves as a broker with individual acks does. A queue hands out its messages in order, and each subscription
/// holds at most as many unsettled deliveries as its source asked for. When a subscription ends, its unsettled messages
/// return to their old places, marked as redelivered. The broker supports every delivery order: an ordering key belongs
/// to the subscription that has an unsettled delivery of it, until that subscription drains. In the order of the queue
/// there is one ordering key. `Broker` is a handle: clones are the same broker.
///
/// As the sink of a relay, it passes on the key of a message as the partition key, as Kafka does, so a consumer can have
/// `key = partition_key` or an order by key. Deliveries of RabbitMQ and NATS have no partition key: there the key is in
/// the header `idem-key`, and a consumer that needs it works with this broker and not with those.
///
/// ```
/// # use idem_test::{Broker, Publication};
/// # use idem_core::{Source, SubscribeOptions, Acker, Settled, BoxError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let broker = Broker::new();
/// let mut orders = broker.queue("orders");
/// broker.publish("orders", Publication::new("paid").message_id("7"));
///
/// orders.subscribe(SubscribeOptions::new("billing", 1)).await?;
/// let (delivery, acker) = orders.next().await?;
/// assert_eq!(delivery.message_id(), Some("7"));
/// assert_eq!(acker.ack().await?, Settled::Confirmed);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct Broker {
    shared: Arc<Shared>,
}

impl Broker {
    /// Creates a broker without messages. A queue is created when it is first named.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns a source of this queue, not yet subscribed. Its clones are further sources of the same queue.
    pub fn queue(&self, name: impl Into<Arc<str>>) -> Queue {
        Queue::new(self.shared.clone(), name.into())
    }

    /// Appends a message to a queue.
    pub fn publish(&self, queue: &str, publication: impl Into<Publication>) {
        self.shared.change(|state| state.publish(queue, publication.into()));
    }

    /// Appends a message to a queue, as JSON.
    ///
    /// # Errors
    /// Fails if the message cannot be serialized as JSON; nothing is published.
    pub fn publish_json(&self, queue: &str, message: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
        self.publish(queue, Publication::json(message)?);
        Ok(())
    }

    /// Sets the replay window: how far back the broker can redeliver. The default is [`ReplayWindow::Unknown`].
    pub fn replay_window(&self, window: ReplayWindow) {
        self.shared.change(|state| state.replay_window = Some(window));
    }

    /// Sets how long a delivery may stay unsettled, see
    /// [`Source::unsettled_limit`](idem_core::Source::unsettled_limit). There is no limit by default. The broker does
    /// not enforce it.
    pub fn unsettled_limit(&self, limit: Duration) {
        self.shared.change(|state| state.unsettled_limit = Some(limit));
    }

    // ===== faults =====

    /// Cuts all connections: `next` of every subscribed source returns an error, and all unsettled messages return.
    ///
    /// ```
    /// # use idem_core::{Acker, BoxError, Settled, Source, SubscribeOptions};
    /// # use idem_test::Broker;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
    /// # let broker = Broker::new();
    /// # let mut orders = broker.queue("orders");
    /// # broker.publish("orders", "paid");
    /// # orders.subscribe(SubscribeOptions::new("billing", 1)).await?;
    /// let (_, acker) = orders.next().await?;
    /// broker.disconnect();
    /// assert!(orders.next().await.is_err());
    /// assert_eq!(acker.ack().await?, Settled::Stale);
    ///
    /// orders.subscribe(SubscribeOptions::new("billing", 1)).await?;
    /// assert!(orders.next().await?.0.redelivered());
    /// # Ok(()) }
    /// ```
    pub fn disconnect(&self) {
        self.shared.change(state::State::disconnect);
    }

    /// While `true`, `subscribe` returns an error. Existing subscriptions are not affected.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.change(|state| state.refusing = refuse);
    }

    /// Loses the next `acks` acks: they return `Sent`, as a write to a socket does, and never arrive. Their deliveries
    /// stay unsettled until their subscription ends, and are then redelivered.
    pub fn lose_acks(&self, acks: usize) {
        self.shared.change(|state| state.acks_to_lose = acks);
    }

    /// Delivers each of the next `messages` messages twice in a row. Neither delivery is marked as redelivered, as if
    /// the producer had published the message twice.
    pub fn deliver_twice(&self, messages: usize) {
        self.shared.change(|state| state.to_double = messages);
    }

    // ===== signals =====

    /// Waits until all queues are empty and nothing is unsettled.
    pub async fn idle(&self) {
        self.shared.until(state::State::is_idle).await;
    }
}

impl std::fmt::Debug for Broker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Broker").finish_non_exhaustive()
    }
}
