//! The broker seam: where deliveries come from.

use std::time::Duration;

use crate::{Acker, BoxError, Delivery, Lag, Ordering};

/// Where deliveries come from: one queue, stream or topic of one broker.
///
/// The worker drives it: `open`, then `next` until it fails or the worker drains, then `drain` and `close`. When `next`
/// fails the worker counts the broker as lost, backs off and calls `open` again, on the same value; so a source keeps
/// no loop of its own for reconnecting. Deliveries of before a failure may still be settled: their ackers say whether
/// that is possible.
pub trait Source: Send + 'static {
    /// Settles the deliveries of this source.
    type Acker: Acker;

    /// The broker's name as OpenTelemetry writes it (`rabbitmq`, `nats`, `kafka`).
    fn system(&self) -> &'static str;

    /// The queue, stream or topic; of several all of them. It is written into errors and the log, as the
    /// [`source`](Delivery::source) of each delivery is written into inbox rows and spans, and must hold no secret.
    fn name(&self) -> &str;

    /// Subscribes. At most `terms.in_flight` deliveries may be unsettled at a time.
    ///
    /// Where `terms.ordering` promises an order, each delivery says by [`Delivery::with_lane`] in which lane it is, and
    /// an order that the broker cannot keep is refused.
    ///
    /// An error of the first call ends the start of the worker, with its message; later ones are tried again.
    /// A configuration that would lose or repeat messages is refused here, and the message names the cure.
    fn open(&mut self, terms: Terms) -> impl Future<Output = Result<(), BoxError>> + Send;

    /// How far back the broker can deliver again, as it stands after the last [`open`](Self::open). A worker refuses to
    /// start where that is longer than claims are kept.
    fn horizon(&self) -> Horizon {
        Horizon::Unstated
    }

    /// Whether its deliveries have a [`position`](Delivery::position). A worker refuses to start with a handler whose key
    /// needs one where there is none, since all of its messages would be dead letters.
    fn has_positions(&self) -> bool {
        true
    }

    /// Whether its deliveries have a [`partition key`](Delivery::partition_key), where their producers set one. A worker
    /// refuses to start with a handler whose key needs one where there is none.
    fn has_partition_keys(&self) -> bool {
        true
    }

    /// Whether its deliveries have a [`subject`](Delivery::subject). A worker that is to route by it refuses to start where
    /// there is none.
    fn has_subjects(&self) -> bool {
        true
    }

    /// How long a delivery may stay unsettled before the broker takes it back, and counts that. A worker whose database is
    /// away for longer than a quarter of it closes the source, so that an outage costs each delivery one return, however long
    /// it lasts, and opens it again when the database is back. `None`: it waits for the database with all that it holds.
    fn unsettled_limit(&self) -> Option<Duration> {
        None
    }

    /// A handle that asks how many messages are ready for the subscription, without a second connection where the broker's
    /// client can do without. The worker takes it after each [`open`](Self::open) that works, and drops it when the subscription
    /// has failed. `None`: the source does not tell.
    fn lag(&self) -> Option<Lag> {
        None
    }

    /// The next delivery. Waits as long as there is none. The end of the broker's stream is an error, never a pause:
    /// a consumer that was cancelled must not look idle.
    ///
    /// Cancel safe: a dropped future loses no delivery.
    fn next(&mut self) -> impl Future<Output = Result<(Delivery, Self::Acker), BoxError>> + Send;

    /// Ends the subscription and releases what is buffered here; deliveries that were handed out stay valid and can
    /// be settled until [`close`](Self::close).
    fn drain(&mut self) -> impl Future<Output = ()> + Send;

    /// Closes the connection. Whatever is unsettled goes back to the broker.
    fn close(&mut self) -> impl Future<Output = ()> + Send;
}

/// What the worker asks of its source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    /// The worker's name: that of the durable consumer or the consumer group, where none other was given.
    pub consumer: String,
    /// How many deliveries may be unsettled at a time: the prefetch, that of each queue where the source has several.
    pub in_flight: u16,
    /// How long a delivery may stay unsettled when all goes well: the handler's deadline. A broker that takes
    /// deliveries back after less than a few times this is warned about.
    pub deadline: Duration,
    /// The order that is promised.
    pub ordering: Ordering,
    /// The database has, or has had, claims of this worker. A source whose own place is gone must not take it for new.
    pub has_history: bool,
}

impl Terms {
    /// With a deadline of 30 seconds and no order, the worker's own defaults; of a worker without a history.
    pub fn new(consumer: impl Into<String>, in_flight: u16) -> Self {
        let (deadline, ordering) = (Duration::from_secs(30), Ordering::None);
        Self { consumer: consumer.into(), in_flight, deadline, ordering, has_history: false }
    }
}

/// How long ago a message can have been published that the broker may still deliver again, be it by a power failure, a
/// reset of offsets or an operator's hand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Horizon {
    /// At most so long.
    Within(Duration),
    /// There is no limit of time.
    Unlimited,
    /// Nobody has said. Claims must be kept for longer than the broker may deliver again all the same.
    Unstated,
}
