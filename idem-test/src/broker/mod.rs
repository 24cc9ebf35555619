//! A queue broker in the process, for tests: FIFO queues, redelivery, and faults at the word of the test.

mod acker;
mod counts;
mod publication;
mod queue;
mod shared;
mod state;

use std::sync::Arc;
use std::time::Duration;

use idem_core::Horizon;
use serde::Serialize;

pub use acker::QueueAcker;
pub use counts::Counts;
pub use publication::Publication;
pub use queue::Queue;

use shared::Shared;

/// A queue broker in the process.
///
/// It behaves as a broker does that acks one by one: a queue hands out its messages in order, at most so many unsettled
/// per subscription as its source asked for; what is unsettled when a subscription ends comes back, marked as
/// redelivered, at its old place. It keeps every order: a lane belongs to the subscription that has something of it
/// unsettled, until that drains; by queue, there is one lane. A handle: clones are the same broker.
///
/// ```
/// # use idem_test::{Broker, Publication};
/// # use idem_core::{Source, Terms, Acker, Settled, BoxError};
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let broker = Broker::new();
/// let mut orders = broker.queue("orders");
/// broker.publish("orders", Publication::new("paid").message_id("7"));
///
/// orders.open(Terms::new("billing", 1)).await?;
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
    /// A broker without messages. Queues come to be when they are first named.
    pub fn new() -> Self {
        Self::default()
    }

    /// A source of this queue, not yet subscribed. Clones of it are further sources of the same queue.
    pub fn queue(&self, name: impl Into<Arc<str>>) -> Queue {
        Queue::new(self.shared.clone(), name.into())
    }

    /// Puts a message at the end of a queue.
    pub fn publish(&self, queue: &str, publication: impl Into<Publication>) {
        self.shared.change(|state| state.publish(queue, publication.into()));
    }

    /// Puts a message at the end of a queue, as JSON.
    ///
    /// # Errors
    /// It cannot be written as JSON; nothing is published.
    pub fn publish_json(&self, queue: &str, message: &(impl Serialize + ?Sized)) -> Result<(), serde_json::Error> {
        self.publish(queue, Publication::json(message)?);
        Ok(())
    }

    /// Says how far back the broker can deliver again; [`Horizon::Unstated`] by default.
    pub fn horizon(&self, horizon: Horizon) {
        self.shared.change(|state| state.horizon = Some(horizon));
    }

    /// Says how long a delivery may stay unsettled, see [`Source::unsettled_limit`](idem_core::Source::unsettled_limit); none by
    /// default. The broker itself takes nothing back then.
    pub fn unsettled_limit(&self, limit: Duration) {
        self.shared.change(|state| state.unsettled_limit = Some(limit));
    }

    // ===== faults =====

    /// Cuts all connections: `next` of every subscribed source is an error, and all that is unsettled comes back.
    pub fn disconnect(&self) {
        self.shared.change(state::State::disconnect);
    }

    /// While `true`, `open` is an error. Subscriptions that stand are not touched.
    pub fn refuse_connections(&self, refuse: bool) {
        self.shared.change(|state| state.refusing = refuse);
    }

    /// Loses the next `acks` acks: they are answered `Sent` as by a socket, and never arrive. Their deliveries stay
    /// unsettled until their subscription or their lease ends, and then come back.
    pub fn lose_acks(&self, acks: usize) {
        self.shared.change(|state| state.acks_to_lose = acks);
    }

    /// Delivers each of the next `messages` messages two times, one right behind the other and neither marked as
    /// redelivered, as if their producers had published them again.
    pub fn deliver_twice(&self, messages: usize) {
        self.shared.change(|state| state.to_double = messages);
    }

    /// Gives deliveries a lease: one that is neither settled nor extended for so long comes back. `None`, the default,
    /// is a broker without leases. It holds for deliveries that are handed out from now on, by tokio's clock.
    pub fn lease(&self, lease: Option<Duration>) {
        self.shared.change(|state| state.lease = lease);
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
