//! One queue, and the options of its deliveries.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use idem_core::{BackgroundTasks, BoxError, Error, ReplayWindow};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio_util::sync::CancellationToken;

use crate::acker::Settling;
use crate::chain::Chains;
use crate::envelope::Envelope;
use crate::leases::Leases;
use crate::pull::{Arrival, Attempt};
use crate::requests::Target;
use crate::settings::Wishes;

/// How long SQS waits for a first message. A worker waits five seconds for the end of a subscription, and so for a receive.
const WAIT: Duration = Duration::from_secs(4);

/// A queue of SQS, returned by [`Sqs::queue`](crate::Sqs::queue): standard or FIFO.
///
/// Deliveries outlive a lost connection: they stay valid, are extended, and can be settled.
///
/// ```no_run
/// # use std::time::Duration;
/// # use idem_sqs::{Envelope, Sqs};
/// # async fn queue(sqs: Sqs) -> Result<(), idem_core::Error> {
/// let orders = sqs
///     .queue("orders")
///     .await?
///     .envelope(Envelope::EventBridge)
///     .visibility(Duration::from_secs(60))
///     .accept_redrive_to("orders-dead");
/// # Ok(()) }
/// ```
pub struct Queue {
    pub(crate) target: Arc<Target>,
    pub(crate) envelope: Envelope,
    pub(crate) wait: Duration,
    pub(crate) wishes: Wishes,
    pub(crate) leases: Arc<Leases>,
    pub(crate) chains: Arc<Chains>,
    pub(crate) unanswered: Arc<Mutex<Option<Attempt>>>,
    pub(crate) replay_window: ReplayWindow,
    /// Whether warnings about the queue were logged.
    pub(crate) warned: bool,
    pub(crate) subscription: Option<Subscription>,
    pub(crate) settling: Option<Arc<Settling>>,
    /// The tasks of `settling`.
    pub(crate) senders: BackgroundTasks,
    /// Extends leases until the source is closed.
    pub(crate) keeper: BackgroundTasks,
}

impl Queue {
    pub(crate) fn new(target: Target) -> Self {
        Self {
            target: Arc::new(target),
            envelope: Envelope::default(),
            wait: WAIT,
            wishes: Wishes::default(),
            leases: Arc::default(),
            chains: Arc::default(),
            unanswered: Arc::default(),
            replay_window: ReplayWindow::Unknown,
            warned: false,
            subscription: None,
            settling: None,
            senders: BackgroundTasks::default(),
            keeper: BackgroundTasks::default(),
        }
    }

    /// Sets what the body of a message is, by default [`Envelope::Plain`].
    pub fn envelope(mut self, envelope: Envelope) -> Self {
        self.envelope = envelope;
        self
    }

    /// Sets the visibility timeout of deliveries, in whole seconds, by default that of the queue: how long a delivery stays with
    /// the worker without an extension, which is also how long it takes until a message is redelivered after a crash.
    /// Deliveries are extended for up to 12 hours. Less than 3 seconds, or more than 12 hours, is an error when the worker
    /// starts.
    pub fn visibility(mut self, visibility: Duration) -> Self {
        self.wishes.visibility = Some(visibility);
        self
    }

    /// Sets how long a receive waits at SQS for a first message, in whole seconds from 1 to 20; another value is the nearest of
    /// these. It is 4 seconds by default, and never more than a third of the visibility timeout.
    ///
    /// An idle worker sends a receive in each such time: about 650,000 a month by default, and 130,000 with 20 seconds. It reads
    /// its lag 170,000 times a month besides. But a worker waits only 5 seconds for the end of its receive when it shuts down:
    /// messages that come later are redelivered when their visibility timeout ends.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # async fn example(sqs: idem_sqs::Sqs) -> Result<(), idem_core::Error> {
    /// // Hundreds of queues in which little happens.
    /// let rare = sqs.queue("rare").await?.wait_time(Duration::from_secs(20));
    /// # Ok(()) }
    /// ```
    pub fn wait_time(mut self, wait: Duration) -> Self {
        self.wait = Duration::from_secs(wait.as_secs().clamp(1, 20));
        self
    }

    /// Accepts that SQS moves messages to the queue of this name after a number of receives, by the redrive policy of this
    /// queue. Otherwise, a queue with such a policy is an error when the worker starts.
    ///
    /// Each return of a message counts as a receive, also that of a worker that shuts down or waits for its database. A
    /// message that was moved is handled no more. If somebody moves it back, it is another message with another id and another
    /// time, so only a key from its content or its attributes recognizes it. In a FIFO queue, the rest of its group runs without it. idem keeps
    /// messages that fail as dead letters, and needs no redrive policy.
    pub fn accept_redrive_to(mut self, queue: impl Into<String>) -> Self {
        self.wishes.redrive_to = Some(queue.into());
        self
    }

    pub(crate) fn ended(&self, source: impl Into<BoxError>) -> BoxError {
        Error::broker(format!("the subscription to {} has ended", self.target.place()), source).into()
    }
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue")
            .field("name", &self.target.name)
            .field("config", &self.target.config)
            .finish_non_exhaustive()
    }
}

/// The state of one subscription, created by `subscribe`.
pub(crate) struct Subscription {
    pub(crate) arrivals: UnboundedReceiver<Arrival>,
    pub(crate) stop: CancellationToken,
    pub(crate) puller: BackgroundTasks,
    pub(crate) visibility: Duration,
    /// Whether more deliveries may arrive.
    pub(crate) live: bool,
}
