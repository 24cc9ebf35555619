//! A server, its queues and its exchanges.

use std::sync::Arc;

use idem_core::Error;

use crate::config::Config;
use crate::connection::Link;
use crate::declare::{Declare, Existing};
use crate::options::Options;
use crate::request::{Expected, Request};
use crate::sink::Exchange;

/// A RabbitMQ server and virtual host, with a login that was checked. It keeps no connection open.
///
/// ```no_run
/// # use idem_core::{Store, Worker};
/// # use idem_rabbitmq::RabbitMq;
/// # async fn open<S: Store>(store: S) -> Result<(), Box<dyn std::error::Error>> {
/// let rabbit = RabbitMq::connect(std::env::var("AMQP_URL")?).await?;
/// let orders = Worker::new("billing-orders", store.clone(), rabbit.queue("orders").await?);
/// let payments = Worker::new("billing-payments", store, rabbit.queue("payments").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RabbitMq {
    config: Arc<Config>,
}

impl RabbitMq {
    /// Connects to `amqp://user:password@host:port/vhost`, or `amqps://` for TLS with the system's certificates.
    ///
    /// # Errors
    /// Same as [`Options::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// Returns the connection options for this URL.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use idem_rabbitmq::RabbitMq;
    /// # async fn example(chain: Vec<u8>, key: Vec<u8>) -> Result<(), idem_core::Error> {
    /// // The certificate is the login: the URL names no user.
    /// let rabbit = RabbitMq::options("amqps://rabbit/shop")
    ///     .tls_identity(chain, key)
    ///     // An operator moves messages back from a dead letter queue within three days.
    ///     .replay_window(Duration::from_secs(3 * 24 * 3600))
    ///     .connect()
    ///     .await?;
    /// # Ok(()) }
    /// ```
    pub fn options(url: impl Into<String>) -> Options {
        Options::new(url.into())
    }

    /// Returns an existing quorum queue.
    ///
    /// # Errors
    /// When awaited: the queue does not exist; it is not a quorum queue; it has a delivery limit, or has none set on
    /// RabbitMQ 4.0 and later without [`delivery_limit_by_policy`](Options::delivery_limit_by_policy); it deletes messages
    /// that were never processed, without [`may_delete_unprocessed`](Existing::may_delete_unprocessed); or the user
    /// lacks the permission to check this. The message names the fix.
    pub fn queue(&self, name: impl Into<String>) -> Existing {
        self.existing(name.into(), Expected::Existing)
    }

    /// Declares a durable quorum queue if it does not exist; on RabbitMQ 4.0 and later without a delivery limit
    /// (`x-delivery-limit` of -1). An existing queue may have other arguments in addition to the requested ones.
    ///
    /// The queue is bound again at each subscribe. If it was deleted since, it is not declared again, because its messages are
    /// lost: each subscribe fails until another start declares it, and [`Health::unsubscribed`](idem_core::Health::unsubscribed)
    /// has the reason. A start that declares the queue of a worker that has handled messages before logs a warning.
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// let orders = rabbit
    ///     .declare("orders")
    ///     .argument("x-single-active-consumer", true)
    ///     .bind("shop", "order.*")
    ///     .consumer_argument("x-priority", 10)
    ///     .await?;
    /// # let _ = orders;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// When awaited: the queue exists with another type, with a delivery limit or with another value of an argument; it
    /// deletes messages that were never processed, without
    /// [`may_delete_unprocessed`](Declare::may_delete_unprocessed); an
    /// exchange that it is to be bound to does not exist; or the user lacks the permission. The message names the fix.
    pub fn declare(&self, name: impl Into<String>) -> Declare {
        Declare(self.existing(name.into(), Expected::Declared))
    }

    /// Returns an existing queue that the caller knows to be a quorum queue. Only for a user without the permission
    /// `configure`, which RabbitMQ requires to report a queue's type and arguments. From RabbitMQ 4.0 on, the caller must
    /// also know that the queue drops no messages, and state it by
    /// [`without_delivery_limit`](Existing::without_delivery_limit). Before 4.0, a delivery limit that somebody has set
    /// goes unnoticed, and so do an expiry, a TTL and a length limit on every version.
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// // The workers' user has only `read` and `write`; another user declared `orders` as a quorum queue with
    /// // x-delivery-limit=-1.
    /// let orders = rabbit.queue_unverified("orders").without_delivery_limit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When awaited: the queue does not exist; or the server is RabbitMQ 4.0 or later, and nothing states that the queue
    /// has no delivery limit.
    pub fn queue_unverified(&self, name: impl Into<String>) -> Existing {
        self.existing(name.into(), Expected::Unverified)
    }

    /// Returns an existing classic queue whose messages may be lost. Use this for a queue that cannot yet be replaced
    /// by a quorum queue.
    ///
    /// idem handles its messages like those of a quorum queue: a duplicate is skipped, and the ack follows the commit.
    /// But a classic queue has limitations, and each start logs a warning:
    ///
    /// * Its messages are on one node and are lost with it. Messages not published as persistent are lost when that
    ///   node restarts.
    /// * It does not count deliveries; it only marks a redelivered message (`redelivered`). So the log does not report
    ///   messages that are redelivered again and again.
    /// * [`DeliveryOrder::Queue`](idem_core::DeliveryOrder::Queue) is refused.
    ///
    /// See RabbitMQ's guides "Classic Queues" and "Quorum Queues", section "Feature Comparison".
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// // Until its producers publish to a quorum queue. Each start logs a warning.
    /// let orders = rabbit.classic_queue("orders").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When awaited: the queue does not exist; it is a quorum queue (use [`queue`](Self::queue)), a stream, not
    /// durable, exclusive or auto-delete; it deletes messages that were never processed, without
    /// [`may_delete_unprocessed`](Existing::may_delete_unprocessed); or the user lacks the permission `configure`.
    pub fn classic_queue(&self, name: impl Into<String>) -> Existing {
        self.existing(name.into(), Expected::Classic)
    }

    /// Returns an existing exchange, to which a relay publishes. A message's destination is its routing key. The empty
    /// name is the default exchange, whose routing keys are names of queues.
    ///
    /// Each message is persistent and mandatory, and confirmed once each queue to which it was routed has stored it. If
    /// no queue is bound for its routing key, the message fails, and its neighbours do not. All messages share one
    /// connection and one channel. After a refusal that does not name its message, those that it may concern are published
    /// one at a time, on a second connection.
    ///
    /// **A confirm is worth less** with a queue of limited length and the default `x-overflow`, `drop-head`: a new message
    /// is confirmed, and the oldest one is dropped, read or not. Set `reject-publish`.
    ///
    /// | message | AMQP |
    /// |---|---|
    /// | id | property `message-id` |
    /// | event type, content type | properties `type`, `content-type` |
    /// | time of staging | property `timestamp` |
    /// | key | header `idem-key`, as bytes |
    /// | headers | headers, as byte strings; each name once, and neither `CC` nor `BCC` |
    ///
    /// The exchange is checked when the relay starts, which fails if it does not exist. An exchange that is deleted later
    /// is a failure of the broker: the messages wait.
    ///
    /// | failure | |
    /// |---|---|
    /// | no queue is bound; the message is too large; its routing key is forbidden, or over 255 bytes | the message is refused, and its neighbours are not |
    /// | `basic.nack`: a queue is full and has `x-overflow: reject-publish`, or its leader is away | a failure of the broker |
    /// | the connection is lost, or does not come up within 10 seconds | a failure of the broker; the next calls share one new connection |
    ///
    /// A message costs one frame with its headers and one for each 128 KiB of payload, and no round trip of its own: any
    /// number may be unconfirmed. Publishing is cancel safe: a call that is dropped was published or not, and neither
    /// fails nor confirms another.
    ///
    /// ```no_run
    /// # fn exchange(rabbit: idem_rabbitmq::RabbitMq) {
    /// let events = rabbit.exchange("events").cloud_events("/shop/billing");
    /// # let _ = events; }
    /// ```
    pub fn exchange(&self, name: impl Into<String>) -> Exchange {
        Exchange::new(Arc::clone(&self.config), name.into())
    }

    fn existing(&self, name: String, expected: Expected) -> Existing {
        Existing { config: Arc::clone(&self.config), name, request: Request::new(expected) }
    }
}

impl Options {
    /// Connects once, to check that the server answers and accepts the login.
    ///
    /// # Errors
    /// [`Error::Config`] if a URL, a host or a certificate cannot be parsed. [`Error::Broker`] if the server is
    /// unreachable, does not answer within 10 seconds, refuses the login or fails TLS verification; with several
    /// [`hosts`](Self::hosts), only if every host fails. The messages name the fix and each host.
    pub async fn connect(self) -> Result<RabbitMq, Error> {
        let config = self.config()?;
        Link::open(&config, "connect").await?.close().await;
        Ok(RabbitMq { config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_shows_no_password() {
        let config = RabbitMq::options("amqps://u:s3ntinel@broker.example").config().unwrap();
        let shown = format!("{:?}", RabbitMq { config: Arc::new(config) });
        assert!(!shown.contains("s3ntinel") && shown.contains("broker.example"), "{shown}");
    }
}
