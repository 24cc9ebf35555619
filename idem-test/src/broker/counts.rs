//! The counters of a queue.

/// The counters of a queue, and how many messages it holds.
///
/// ```
/// # use idem_core::{Acker, BoxError, Source, SubscribeOptions};
/// # use idem_test::Broker;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let broker = Broker::new();
/// let mut orders = broker.queue("orders");
/// broker.publish("orders", "paid");
/// orders.subscribe(SubscribeOptions::new("billing", 1)).await?;
/// let (_, acker) = orders.next().await?;
/// acker.release().await?;
/// let counts = orders.counts();
/// assert_eq!((counts.deliveries, counts.releases, counts.acks, counts.ready), (1, 1, 0, 1));
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Published messages.
    pub published: usize,
    /// Deliveries handed out, including redeliveries.
    pub deliveries: usize,
    /// Deliveries marked as redelivered.
    pub redeliveries: usize,
    /// Deliveries reported as new and stored before their first run.
    pub stored: usize,
    /// Acks that arrived in time.
    pub acks: usize,
    /// Releases that arrived in time.
    pub releases: usize,
    /// Acks and releases of deliveries that had already gone back to the queue.
    pub stale: usize,
    /// Messages that wait to be handed out.
    pub ready: usize,
    /// Deliveries that are handed out and not yet settled.
    pub unsettled: usize,
}
