//! One stream, and the options of its consumer.

use std::fmt;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use idem_core::{BackgroundTasks, BoxError, DeliveryOrder, Error, ReplayWindow, SubscribeOptions};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::consumer::Made;
use crate::leases::Leases;
use crate::link::Link;
use crate::name::invalid;
use crate::pull::Arrival;
use crate::settings::{SHORTEST, Start, Wishes};

/// A stream of a NATS server, returned by [`Nats::stream`](crate::Nats::stream), and the durable pull consumer that
/// reads it.
///
/// Each [`subscribe`](idem_core::Source::subscribe) opens a new connection. Deliveries of the earlier ones stay valid,
/// are extended, and can be settled over the new one, unless the stream was recreated in the meantime.
///
/// ```no_run
/// # use std::time::Duration;
/// # use idem_nats::{Nats, Start};
/// # async fn stream(nats: Nats) -> Result<(), idem_core::Error> {
/// let orders = nats
///     .stream("orders")
///     .await?
///     .durable("billing-eu")
///     .filter_subject("orders.eu.>")
///     .ack_wait(Duration::from_secs(60))
///     .start(Start::New);
/// # Ok(()) }
/// ```
pub struct Stream {
    pub(crate) config: Arc<Config>,
    pub(crate) name: Arc<str>,
    pub(crate) durable: Option<String>,
    pub(crate) wishes: Wishes,
    pub(crate) confirmed: bool,
    pub(crate) link: Link,
    pub(crate) leases: Arc<Leases>,
    /// The part that the subjects of all acks have in common, once it is known.
    pub(crate) acks: Arc<OnceLock<String>>,
    pub(crate) made: Option<Made>,
    pub(crate) replay_window: ReplayWindow,
    /// When a subscription last ended, and whether that was soon after the previous end.
    pub(crate) lost: Option<Instant>,
    pub(crate) suspicious: bool,
    /// Where the last search for unreadable messages stopped, or 0 if it reached the end.
    pub(crate) searched: u64,
    pub(crate) subscription: Option<Subscription>,
    /// Ends with the source. It outlives subscriptions, as the deliveries do.
    pub(crate) keeper: BackgroundTasks,
}

impl Stream {
    pub(crate) fn new(config: Arc<Config>, name: String) -> Self {
        Self {
            config,
            name: name.into(),
            durable: None,
            wishes: Wishes::default(),
            confirmed: true,
            link: Link::new(),
            leases: Arc::default(),
            acks: Arc::default(),
            made: None,
            replay_window: ReplayWindow::Unknown,
            lost: None,
            suspicious: false,
            searched: 0,
            subscription: None,
            keeper: BackgroundTasks::default(),
        }
    }

    /// Sets the name of the durable consumer, by default the worker's name.
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.durable = Some(name.into());
        self
    }

    /// Receives only messages with this subject, which may contain wildcards. Each further call adds a subject, which
    /// requires a server of version 2.10 or newer.
    pub fn filter_subject(mut self, subject: impl Into<String>) -> Self {
        self.wishes.filters.push(subject.into());
        self
    }

    /// Sets how long a delivery stays with the worker without an extension, which is also how long it takes until a
    /// message is redelivered after a crash. A new consumer has 30 seconds by default. An existing consumer may have
    /// any value of one second or more, unless this option is set; it must then have the same value.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.wishes.ack_wait = Some(wait);
        self
    }

    /// Sets where a new consumer begins, by default [`Start::All`]. It does not affect an existing consumer.
    pub fn start(mut self, start: Start) -> Self {
        self.wishes.start = start;
        self
    }

    /// Updates an existing consumer whose settings differ from the required ones, instead of rejecting it. Settings
    /// that the server cannot change still cause an error.
    ///
    /// ```no_run
    /// # async fn example(nats: idem_nats::Nats) -> Result<(), idem_core::Error> {
    /// // The consumer was created without the second filter. This adds the filter instead of failing.
    /// let orders = nats
    ///     .stream("ORDERS")
    ///     .await?
    ///     .filter_subject("orders.*.paid")
    ///     .filter_subject("orders.*.refunded")
    ///     .reconcile();
    /// # Ok(()) }
    /// ```
    pub fn reconcile(mut self) -> Self {
        self.wishes.reconcile = true;
        self
    }

    /// Does not wait for the server's response to an ack. This saves a round trip after the commit; a lost ack leads to
    /// one redelivery, which the claim detects as a duplicate.
    ///
    /// ```no_run
    /// # async fn example(nats: idem_nats::Nats) -> Result<(), idem_core::Error> {
    /// // A server on another continent: the handler takes less time than the round trip.
    /// let readings = nats.stream("READINGS").await?.unconfirmed_acks();
    /// # Ok(()) }
    /// ```
    pub fn unconfirmed_acks(mut self) -> Self {
        self.confirmed = false;
        self
    }

    /// Returns the stream's name and address, for errors.
    pub(crate) fn place(&self) -> String {
        format!("stream `{}` on {}", self.name, self.config.address)
    }

    pub(crate) fn ended(&self, source: impl Into<BoxError>) -> BoxError {
        Error::broker(format!("the subscription to {} has ended", self.place()), source).into()
    }

    /// Returns the name of the consumer, or an error if an option cannot be satisfied.
    pub(crate) fn check(&self, options: &SubscribeOptions) -> Result<String, Error> {
        let refused = |text: String| Err(Error::Config(text));
        if matches!(options.order, DeliveryOrder::Partition | DeliveryOrder::Key) {
            return refused(format!(
                "JetStream has neither partitions nor keys, so it cannot keep DeliveryOrder::{:?}: use DeliveryOrder::Queue, \
                 or one stream or filter for each partition",
                options.order
            ));
        }
        if let Some(wait) = self.wishes.ack_wait.filter(|wait| *wait < SHORTEST) {
            return refused(format!(
                "an ack wait of {wait:?} is too short: idem could not extend it in time over a network. Allow at least {SHORTEST:?}"
            ));
        }
        let name = self.durable.as_deref().unwrap_or(&options.consumer);
        match invalid(name) {
            Some(why) => refused(format!(
                "{name:?} is not a valid name of a JetStream consumer, because it {why}: set another name with .durable(..)"
            )),
            None => Ok(name.to_owned()),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("name", &self.name).field("config", &self.config).finish_non_exhaustive()
    }
}

/// The state of one subscription, created by `subscribe`.
pub(crate) struct Subscription {
    pub(crate) arrivals: UnboundedReceiver<Arrival>,
    pub(crate) stop: CancellationToken,
    pub(crate) puller: BackgroundTasks,
    pub(crate) consumer: String,
    /// The ack wait of its deliveries.
    pub(crate) wait: Duration,
    /// Whether limits of the stream delete messages that were never handled.
    pub(crate) deletes: bool,
    /// How many of the unreadable messages that it began with are unsettled.
    pub(crate) first: Arc<AtomicUsize>,
    /// How many deliveries may be unsettled, if the consumer's limit is why these are fewer than the worker asked for.
    pub(crate) capacity: Option<usize>,
    /// Whether more deliveries may arrive.
    pub(crate) live: bool,
}
