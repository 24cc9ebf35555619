//! The interface to brokers, which deliver the messages: a source, the settlement of its deliveries, and their order.

use std::time::Duration;

use crate::{BoxError, Delivery, Lag};

/// A source of deliveries: one queue, stream or topic of one broker.
///
/// The worker calls `subscribe`, then `next` until it fails or the worker drains, then `drain` and `close`. If `next`
/// fails, the worker treats the broker as lost, backs off and calls `subscribe` again on the same value, so a source
/// needs no reconnect loop. Deliveries received before a failure may still be settled: their ackers report whether that
/// is possible.
///
/// ```
/// # use idem_core::{Acker, BoxError, Delivery, Settled, Source, SubscribeOptions};
/// # struct Client;
/// # struct Message { tag: u64, body: Vec<u8>, redelivered: bool }
/// # impl Client {
/// #     async fn consume(&mut self, _: &str, _: u16) -> Result<(), BoxError> { Ok(()) }
/// #     async fn message(&mut self) -> Result<Message, BoxError> { Err("the connection is lost".into()) }
/// #     async fn cancel(&mut self) {}
/// #     async fn close(&mut self) {}
/// # }
/// # struct Ack(u64);
/// # impl Acker for Ack {
/// #     async fn ack(self) -> Result<Settled, BoxError> { Ok(Settled::Sent) }
/// #     async fn release(self) -> Result<Settled, BoxError> { Ok(Settled::Sent) }
/// # }
/// struct Orders { client: Client }
///
/// impl Source for Orders {
///     type Acker = Ack;
///     fn system(&self) -> &'static str { "mybroker" }
///     fn name(&self) -> &str { "orders" }
///     async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
///         self.client.consume("orders", options.max_unsettled).await
///     }
///     async fn next(&mut self) -> Result<(Delivery, Ack), BoxError> {
///         let message = self.client.message().await?;
///         Ok((Delivery::new("orders", message.body).with_redelivered(message.redelivered), Ack(message.tag)))
///     }
///     async fn drain(&mut self) { self.client.cancel().await }
///     async fn close(&mut self) { self.client.close().await }
/// }
/// ```
pub trait Source: Send + 'static {
    /// Settles the deliveries of this source.
    type Acker: Acker;

    /// The broker's name as defined by OpenTelemetry (`rabbitmq`, `nats`, `kafka`, `aws_sqs`).
    fn system(&self) -> &'static str;

    /// The name of the queue, stream or topic, or the names of all of them. It is written to errors and the log, just
    /// as the [`source`](Delivery::source) of each delivery is written to inbox rows and spans. It must not contain a
    /// secret.
    fn name(&self) -> &str;

    /// Subscribes. At most `options.max_unsettled` deliveries may be unsettled at a time.
    ///
    /// If `options.order` is an order, each delivery has its ordering key ([`Delivery::with_ordering_key`]), and an
    /// order that the broker cannot guarantee is an error.
    ///
    /// An error of the first call ends the start of the worker, with its message; later ones are retried. A
    /// configuration that would lose or repeat messages is an [`Error::Config`](crate::Error::Config), whose message names the
    /// fix. So is a queue, stream or consumer that was deleted since the first call: its messages are lost, so it must not be
    /// created again silently. Later, such an error is also [`Health::unsubscribed`](crate::Health::unsubscribed).
    fn subscribe(&mut self, options: SubscribeOptions) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// How long the broker can redeliver messages, as of the last [`subscribe`](Self::subscribe). A worker refuses to
    /// start if that is longer than claims are kept.
    fn replay_window(&self) -> ReplayWindow {
        ReplayWindow::Unknown
    }

    /// Whether its deliveries have a [`position`](Delivery::position); [`with_position`](Delivery::with_position) defines what
    /// one must be. If not, a worker refuses to start with a handler whose key needs one, because all of its messages would
    /// become dead letters.
    fn has_positions(&self) -> bool {
        true
    }

    /// Whether its deliveries have a [`partition key`](Delivery::partition_key) if the producer sets one. If not, a
    /// worker refuses to start with a handler whose key needs one.
    fn has_partition_keys(&self) -> bool {
        true
    }

    /// Whether its deliveries have an [`event type`](Delivery::event_type) if the producer sets one. If not, a worker
    /// whose handlers name event types refuses to start, unless it takes them from a header, a subject or a CloudEvent.
    fn has_event_types(&self) -> bool {
        true
    }

    /// Whether its deliveries have a [`subject`](Delivery::subject). If not, a worker that routes by subject refuses to
    /// start.
    fn has_subjects(&self) -> bool {
        true
    }

    /// How long a delivery may stay unsettled before the broker takes it back and increments its delivery count. If the
    /// database is unavailable for longer than a quarter of this time, or consumption is
    /// [paused](crate::Health::paused) for longer, the worker closes the source, and opens it again once that is over.
    /// So it costs each delivery one return, however long it lasts. `None`: the worker waits and keeps its deliveries.
    fn unsettled_limit(&self) -> Option<Duration> {
        None
    }

    /// How many queues it has that may each have `max_unsettled` deliveries unsettled, as of the last
    /// [`subscribe`](Self::subscribe). While the database refuses as many messages as may be unsettled in all of them,
    /// the worker is not ready.
    fn queues(&self) -> usize {
        1
    }

    /// How many deliveries of all queues may be unsettled at present, if that is fewer than `max_unsettled` of each: a source
    /// may have to take less, for a while or because of the broker's own limit. The worker asks after each
    /// [`subscribe`](Self::subscribe) and each [`next`](Self::next), and is not ready while the database refuses as many
    /// messages.
    fn capacity(&self) -> Option<usize> {
        None
    }

    /// Returns a handle that reads how many messages are ready for the subscription, without a second connection if the
    /// broker's client allows it. The worker calls this after each successful [`subscribe`](Self::subscribe), and drops
    /// the handle when the subscription has failed. `None`: the source does not report the number.
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

/// Settles one delivery, once: `ack` and `release` consume the acker. Handlers never see it.
///
/// An acker belongs to the delivery that it came with. Once the connection, channel or assignment that brought the
/// delivery has ended, settling returns [`Settled::Stale`] and must not touch any other delivery. Dropping an acker
/// without settling leaves the delivery to the broker, which redelivers it. If the broker leases a delivery for a time only,
/// the source extends the lease until the acker is settled or dropped: a delivery may wait, and a handler may run, for longer.
///
/// ```
/// # use idem_core::{Acker, BoxError, Settled};
/// # struct Channel;
/// # impl Channel {
/// #     fn is_open(&self) -> bool { true }
/// #     async fn ack(&self, _: u64) -> Result<(), BoxError> { Ok(()) }
/// #     async fn requeue(&self, _: u64) -> Result<(), BoxError> { Ok(()) }
/// # }
/// struct Tag { channel: Channel, number: u64 }
///
/// impl Acker for Tag {
///     async fn ack(self) -> Result<Settled, BoxError> {
///         if !self.is_live() { return Ok(Settled::Stale) }
///         self.channel.ack(self.number).await.map(|()| Settled::Sent)
///     }
///     async fn release(self) -> Result<Settled, BoxError> {
///         if !self.is_live() { return Ok(Settled::Stale) }
///         self.channel.requeue(self.number).await.map(|()| Settled::Sent)
///     }
///     fn is_live(&self) -> bool { self.channel.is_open() }
/// }
/// ```
pub trait Acker: Send + 'static {
    /// Reports to the broker that the database has taken over the message. Called only after a commit.
    ///
    /// If the future is dropped, the result is unknown. This is harmless: a redelivery finds the claim. The worker
    /// drops the future after 10 seconds, so an ack that is never answered blocks a worker task for no longer than
    /// that.
    fn ack(self) -> impl Future<Output = Result<Settled, BoxError>> + Send;

    /// Called before [`ack`](Self::ack) if the delivery had no claim and was stored in the inbox before its first run.
    /// A source that has to mark redeliveries itself needs these calls.
    fn stored(&mut self) {}

    /// Returns the delivery to the broker immediately, for another worker. Called only while the worker drains. A
    /// broker that cannot take back a single delivery redelivers it once the subscription has ended.
    fn release(self) -> impl Future<Output = Result<Settled, BoxError>> + Send;

    /// Returns whether this worker still owns the delivery. Called before a handler starts; `true` may be out of date
    /// at once.
    fn is_live(&self) -> bool {
        true
    }
}

/// The result of settling a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// Written to the socket. The broker does not confirm, so the settlement can still be lost; a redelivery then finds
    /// the claim.
    Sent,
    /// The broker has confirmed it.
    Confirmed,
    /// The worker no longer owned the delivery, and nothing was sent. The broker redelivers it, and the redelivery
    /// finds the claim.
    Stale,
}

/// The options of a subscription, which the worker passes to its source.
///
/// ```
/// # use idem_core::{DeliveryOrder, SubscribeOptions};
/// let options = SubscribeOptions::new("billing", 20).with_order(DeliveryOrder::Queue);
/// assert_eq!((options.max_unsettled, options.has_history), (20, false));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SubscribeOptions {
    /// The worker's name: the name of the durable consumer or the consumer group unless another is configured.
    pub consumer: String,
    /// The maximum number of unsettled deliveries: the prefetch, per queue if the source has several.
    pub max_unsettled: u16,
    /// With this many unsettled deliveries each worker task still has one to process; those up to `max_unsettled` only wait
    /// here, to save time. A source whose broker limits all workers together takes no more than this, because the others
    /// would be missing elsewhere, and then returns it from [`Source::capacity`]. [`new`](Self::new) sets it to
    /// `max_unsettled`; more than that counts as that.
    pub least_unsettled: u16,
    /// How long a delivery normally stays unsettled: the longest timeout of the worker's handlers. The source warns if
    /// the broker takes deliveries back after less than a few times this.
    pub handler_timeout: Duration,
    /// The order to guarantee.
    pub order: DeliveryOrder,
    /// Whether this worker has handled messages before, as the database knows. If so, a source whose stored position is
    /// gone must not start like a new one.
    pub has_history: bool,
}

impl SubscribeOptions {
    /// Creates options with a handler timeout of 30 seconds and no order, the worker's defaults, for a worker that
    /// has handled no message. A `max_unsettled` of 0, with which nothing would be received, counts as 1.
    pub fn new(consumer: impl Into<String>, max_unsettled: u16) -> Self {
        let (handler_timeout, order) = (Duration::from_secs(30), DeliveryOrder::None);
        let max_unsettled = max_unsettled.max(1);
        let (consumer, least_unsettled) = (consumer.into(), max_unsettled);
        Self { consumer, max_unsettled, least_unsettled, handler_timeout, order, has_history: false }
    }

    /// Sets how long a delivery normally stays unsettled.
    pub fn with_handler_timeout(self, handler_timeout: Duration) -> Self {
        Self { handler_timeout, ..self }
    }

    /// Sets the order to guarantee.
    pub fn with_order(self, order: DeliveryOrder) -> Self {
        Self { order, ..self }
    }

    /// Sets whether this worker has handled messages before.
    pub fn with_history(self, has_history: bool) -> Self {
        Self { has_history, ..self }
    }
}

/// The order in which a worker handles deliveries.
///
/// With any order but `None`, deliveries with the same ordering key are handled one after another: the next begins when
/// the one before is processed or dead. A failing message is retried in place, and the deliveries behind it wait. A
/// message that is replayed later by an operator runs out of order.
///
/// When the worker starts, a source rejects an order that its broker cannot guarantee.
///
/// ```
/// # use idem_core::{DeliveryOrder, Source, Store, Worker};
/// # fn add<S: Store>(store: S, orders: impl Source) {
/// // Kafka: the events of one order, by its record key, one after another; those of other orders at the same time.
/// let worker = Worker::new("billing", store, orders).order(DeliveryOrder::Key);
/// # }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum DeliveryOrder {
    /// No order: deliveries are handled as they arrive.
    #[default]
    None,
    /// Deliveries of the same partition are handled in order.
    Partition,
    /// Deliveries with the same broker key (Kafka's record key) are handled in order. The deliveries without a key in a
    /// partition are handled in order, too.
    Key,
    /// All deliveries of the queue are handled in order. The broker must deliver the queue to one consumer at a time.
    Queue,
}

/// How long after its publication the broker may redeliver a message, whether because of a power failure, an offset
/// reset or an operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReplayWindow {
    /// At most this long.
    Within(Duration),
    /// Without a time limit.
    Unlimited,
    /// Not configured. Claims must still be kept for longer than the broker may redeliver.
    Unknown,
}

impl ReplayWindow {
    /// Returns the longer of two, for a source with several queues or topics. An unknown one never hides a known one.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use idem_core::ReplayWindow::{Unknown, Unlimited, Within};
    /// let hour = Within(Duration::from_secs(3600));
    /// assert_eq!([hour.longest(Unknown), hour.longest(Unlimited)], [hour, Unlimited]);
    /// ```
    pub fn longest(self, other: Self) -> Self {
        match (self, other) {
            (Self::Unlimited, _) | (_, Self::Unlimited) => Self::Unlimited,
            (Self::Within(one), Self::Within(other)) => Self::Within(one.max(other)),
            (Self::Unknown, known) | (known, Self::Unknown) => known,
        }
    }
}
