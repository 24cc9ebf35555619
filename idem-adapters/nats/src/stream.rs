//! One stream, and what is asked of its consumer.

use std::convert::Infallible;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{BoxError, DeliveryOrder, Error, ReplayWindow, SubscribeOptions};
use tokio::task::JoinSet;
use tokio::time::Instant;

use crate::config::Config;
use crate::connection::Link;
use crate::error::broker;
use crate::lease::Leases;
use crate::name::unfit;
use crate::settings::{SHORTEST, Start, Wishes};
use crate::subscription::{Made, Subscription};

/// One stream of one NATS server, made by [`Nats::stream`](crate::Nats::stream), and the durable pull consumer by which
/// it is read.
///
/// Each [`subscribe`](idem_core::Source::subscribe) makes a new connection. Deliveries of the earlier ones stay ours, are extended,
/// and can be settled by the new one, unless the stream was recreated in the meantime.
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
    pub(crate) made: Option<Made>,
    pub(crate) replay_window: ReplayWindow,
    /// When a subscription ended last, and whether that was soon after the time before.
    pub(crate) lost: Option<Instant>,
    pub(crate) suspicious: bool,
    pub(crate) subscription: Option<Subscription>,
    /// Ends with the source. It outlives subscriptions, as the deliveries do.
    pub(crate) keeper: JoinSet<Infallible>,
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
            made: None,
            replay_window: ReplayWindow::Unknown,
            lost: None,
            suspicious: false,
            subscription: None,
            keeper: JoinSet::new(),
        }
    }

    /// The name of the durable consumer, if it is not to be that of the worker.
    pub fn durable(mut self, name: impl Into<String>) -> Self {
        self.durable = Some(name.into());
        self
    }

    /// Takes only messages with this subject, which may hold wildcards. Said more than once it adds to the others, which
    /// needs a server of 2.10 or newer.
    pub fn filter_subject(mut self, subject: impl Into<String>) -> Self {
        self.wishes.filters.push(subject.into());
        self
    }

    /// How long a delivery stays ours without being extended: by so much later it comes again after a process has died.
    /// For a new consumer 30 seconds are the default. An existing one may have any of a second or more, unless it is said
    /// here; then it must have that.
    pub fn ack_wait(mut self, wait: Duration) -> Self {
        self.wishes.ack_wait = Some(wait);
        self
    }

    /// Where a new consumer begins, default [`Start::All`]. It changes nothing about one that exists.
    pub fn start(mut self, start: Start) -> Self {
        self.wishes.start = start;
        self
    }

    /// Updates an existing consumer whose settings differ from those needed, instead of refusing it. Settings that the server
    /// cannot change are refused all the same.
    ///
    /// ```no_run
    /// # async fn example(nats: idem_nats::Nats) -> Result<(), idem_core::Error> {
    /// // The consumer was made without the second filter: it gets it, instead of an error.
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

    /// Does not wait for the server's answer to an ack. That saves a round trip after the commit; an ack that is lost
    /// comes to one more delivery, which the claim answers.
    ///
    /// ```no_run
    /// # async fn example(nats: idem_nats::Nats) -> Result<(), idem_core::Error> {
    /// // A server on another continent: the handler costs less than the round trip.
    /// let readings = nats.stream("READINGS").await?.unconfirmed_acks();
    /// # Ok(()) }
    /// ```
    pub fn unconfirmed_acks(mut self) -> Self {
        self.confirmed = false;
        self
    }

    /// The stream and where it is, for errors.
    pub(crate) fn place(&self) -> String {
        format!("stream `{}` on {}", self.name, self.config.address)
    }

    pub(crate) fn ended(&self, source: impl Into<BoxError>) -> BoxError {
        broker(format!("the subscription to {} has ended", self.place()), source).into()
    }

    /// The name of the consumer, where all can be kept that is asked for.
    pub(crate) fn check(&self, options: &SubscribeOptions) -> Result<String, Error> {
        let refused = |text: String| Err(Error::Config(text));
        if options.max_unsettled == 0 {
            return refused("with 0 deliveries in flight the worker receives nothing: allow at least 1".to_owned());
        }
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
        match unfit(name) {
            Some(why) => refused(format!(
                "no consumer of JetStream can have the name {name:?}, since it {why}: give it another by .durable(..)"
            )),
            None => Ok(name.to_owned()),
        }
    }
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream")
            .field("name", &self.name)
            .field("durable", &self.durable)
            .field("config", &self.config)
            .field("wishes", &self.wishes)
            .field("open", &self.subscription.as_ref().is_some_and(|subscription| subscription.live))
            .finish_non_exhaustive()
    }
}
