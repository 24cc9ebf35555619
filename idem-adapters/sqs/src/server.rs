//! A configuration of the SDK, and its queues.

use std::fmt;
use std::sync::Arc;

use aws_types::SdkConfig;
use idem_core::Error;

use crate::config::Config;
use crate::name::find;
use crate::queue::Queue;
use crate::requests::Target;
use crate::settings::Settings;
use crate::sink::Queues;

/// Amazon SQS, with the region, the credentials and the HTTP client of the application's `SdkConfig`. It opens no connection.
///
/// ```no_run
/// # use idem_core::{Error, Store, Worker};
/// # use idem_sqs::Sqs;
/// # async fn open<S: Store>(config: aws_types::SdkConfig, store: S) -> Result<(), Error> {
/// let sqs = Sqs::new(&config);
/// let orders = Worker::new("billing-orders", store, sqs.queue("orders").await?);
/// # Ok(()) }
/// ```
#[derive(Clone)]
pub struct Sqs {
    pub(crate) config: SdkConfig,
}

impl Sqs {
    /// Uses this configuration, which `aws_config` loads. It needs a region, a behavior version, an HTTP client and, unless the
    /// retries are disabled, a sleep; otherwise [`queue`](Self::queue) fails. Credentials are asked of its provider when they
    /// are needed, so they may change.
    pub fn new(config: &SdkConfig) -> Self {
        Self { config: config.clone() }
    }

    /// Returns an existing queue, by its name, its URL or its ARN.
    ///
    /// # Errors
    /// [`Error::Config`] if the queue does not exist, the configuration is incomplete or the policy does not allow
    /// `sqs:GetQueueUrl` (unless a URL is given) and `sqs:GetQueueAttributes`; [`Error::Broker`] if SQS does not answer. The message says how to fix it.
    pub async fn queue(&self, queue: impl Into<String>) -> Result<Queue, Error> {
        let (queue, config) = (queue.into(), Arc::new(Config::new(&self.config)?));
        let found = find(&config.client, &queue, &config.region).await;
        let (url, name) = found.map_err(|error| error.error(&queue, &config.region))?;
        let target = Target { config, url, name: name.into() };
        Settings::read(&target).await?;
        Ok(Queue::new(target))
    }

    /// Returns the queues to which a relay publishes. The name of a message's queue is `prefix`, followed by its destination:
    /// with the prefix `shop-`, a message to `orders` is sent to the queue `shop-orders`. The prefix may be empty; the
    /// destination may then be a URL or an ARN too.
    ///
    /// | message | SQS |
    /// |---|---|
    /// | payload | body; one that is not text of the characters that SQS allows: base64, with `idem-encoding: base64`; an empty one: `-`, with `idem-encoding: empty` |
    /// | id | attribute `message-id`; in a FIFO queue also the deduplication id |
    /// | key | attribute `idem-key`; in a FIFO queue also the group, or its SHA-256 if it is not up to 128 printable ASCII characters without blanks. A message without a key is alone in its group |
    /// | event type, content type | attributes `event-type`, `content-type` |
    /// | headers | attributes: text, or binary; an empty value is `-` of the type `String.empty`. Of `baggage`, `tracestate` and `traceparent`, those for which there is no room are dropped |
    ///
    /// A source of idem reads all of that.
    ///
    /// | failure | |
    /// |---|---|
    /// | the queue does not exist, or the policy does not allow `sqs:GetQueueUrl` or `sqs:SendMessage`; a header's name is not one of an attribute, or occurs twice; more than 10 attributes; more than 1 MiB with attributes, or more than the queue takes | the message is refused, and its neighbours are not |
    /// | SQS does not answer within 10 seconds, has a fault or throttles; the credentials are expired; the clock of this machine is wrong | a failure of the broker |
    ///
    /// Up to ten messages are one request. Publishing is cancel safe: a call that is dropped was published or not, and neither
    /// fails nor confirms another.
    ///
    /// ```no_run
    /// # fn queues(sqs: idem_sqs::Sqs) {
    /// let queues = sqs.queues("shop-").cloud_events("/shop/billing");
    /// # let _ = queues; }
    /// ```
    pub fn queues(&self, prefix: impl Into<String>) -> Queues {
        Queues::new(self.config.clone(), prefix.into())
    }
}

impl fmt::Debug for Sqs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sqs").field("region", &self.config.region()).finish_non_exhaustive()
    }
}
