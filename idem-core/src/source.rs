//! The interface to brokers, which deliver the messages.

use std::time::Duration;

use crate::{Acker, BoxError, Delivery, DeliveryOrder, Lag};

/// A source of deliveries: one queue, stream or topic of one broker.
///
/// The worker calls `open`, then `next` until it fails or the worker drains, then `drain` and `close`. If `next` fails,
/// the worker treats the broker as lost, backs off and calls `open` again on the same value, so a source needs no
/// reconnect loop. Deliveries received before a failure may still be settled: their ackers report whether that is
/// possible.
pub trait Source: Send + 'static {
    /// Settles the deliveries of this source.
    type Acker: Acker;

    /// The broker's name as defined by OpenTelemetry (`rabbitmq`, `nats`, `kafka`).
    fn system(&self) -> &'static str;

    /// The name of the queue, stream or topic, or the names of all of them. It is written to errors and the log, just
    /// as the [`source`](Delivery::source) of each delivery is written to inbox rows and spans. It must not contain a
    /// secret.
    fn name(&self) -> &str;

    /// Subscribes. At most `options.max_unsettled` deliveries may be unsettled at a time.
    ///
    /// If `options.order` is an order, each delivery has its ordering key ([`Delivery::with_ordering_key`]), and an order that
    /// the broker cannot guarantee is an error.
    ///
    /// An error of the first call ends the start of the worker, with its message; later ones are retried. A
    /// configuration that would lose or repeat messages is an error, whose message names the fix.
    fn subscribe(&mut self, options: SubscribeOptions) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// How long the broker can redeliver messages, as of the last [`subscribe`](Self::subscribe). A worker refuses to start if
    /// that is longer than claims are kept.
    fn replay_window(&self) -> ReplayWindow {
        ReplayWindow::Unknown
    }

    /// Whether its deliveries have a [`position`](Delivery::position). If not, a worker refuses to start with a handler
    /// whose key needs one, because all of its messages would become dead letters.
    fn has_positions(&self) -> bool {
        true
    }

    /// Whether its deliveries have a [`partition key`](Delivery::partition_key) if the producer sets one. If not, a
    /// worker refuses to start with a handler whose key needs one.
    fn has_partition_keys(&self) -> bool {
        true
    }

    /// Whether its deliveries have a [`subject`](Delivery::subject). If not, a worker that routes by subject refuses to
    /// start.
    fn has_subjects(&self) -> bool {
        true
    }

    /// How long a delivery may stay unsettled before the broker takes it back and increments its delivery count. If the
    /// database is unavailable for longer than a quarter of this time, the worker closes the source, and opens it again
    /// once the database is back. So an outage of any length costs each delivery one return. `None`: the worker waits
    /// for the database and keeps its deliveries.
    fn unsettled_limit(&self) -> Option<Duration> {
        None
    }

    /// How many queues it has that may each have `max_unsettled` deliveries unsettled, as of the last
    /// [`subscribe`](Self::subscribe). While the database refuses as many messages as may be unsettled in all of them, the
    /// worker is not ready.
    fn queues(&self) -> usize {
        1
    }

    /// Returns a handle that reads how many messages are ready for the subscription, without a second connection if the
    /// broker's client allows it. The worker calls this after each successful [`subscribe`](Self::subscribe), and drops the
    /// handle when the subscription has failed. `None`: the source does not report the number.
    fn lag(&self) -> Option<Lag> {
        None
    }

    /// Waits for the next delivery. The end of the broker's stream is an error, never a pause: a consumer that was
    /// cancelled must not look idle.
    ///
    /// Cancel safe: dropping the future loses no delivery.
    fn next(&mut self) -> impl Future<Output = Result<(Delivery, Self::Acker), BoxError>> + Send;

    /// Ends the subscription and releases the buffered deliveries. Deliveries that were already returned stay valid and
    /// can be settled until [`close`](Self::close).
    fn drain(&mut self) -> impl Future<Output = ()> + Send;

    /// Closes the connection. Unsettled deliveries return to the broker.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// The options of a subscription, which the worker passes to its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubscribeOptions {
    /// The worker's name: the name of the durable consumer or the consumer group unless another is configured.
    pub consumer: String,
    /// The maximum number of unsettled deliveries: the prefetch, per queue if the source has several.
    pub max_unsettled: u16,
    /// How long a delivery normally stays unsettled: the longest timeout of the worker's handlers. The source warns if the broker takes
    /// deliveries back after less than a few times this.
    pub handler_timeout: Duration,
    /// The order to guarantee.
    pub order: DeliveryOrder,
    /// Whether the database has, or has had, claims of this worker. If so, a source whose stored position is gone must
    /// not start like a new one.
    pub has_history: bool,
}

impl SubscribeOptions {
    /// Creates options with a handler timeout of 30 seconds and no order, the worker's defaults, for a worker without
    /// claims.
    pub fn new(consumer: impl Into<String>, max_unsettled: u16) -> Self {
        let (handler_timeout, order) = (Duration::from_secs(30), DeliveryOrder::None);
        Self { consumer: consumer.into(), max_unsettled, handler_timeout, order, has_history: false }
    }
}

/// How long after its publication the broker may redeliver a message, whether because of a power failure, an offset
/// reset or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReplayWindow {
    /// At most this long.
    Within(Duration),
    /// Without a time limit.
    Unlimited,
    /// Not configured. Claims must still be kept for longer than the broker may redeliver.
    Unknown,
}
