//! A server, and its queues.

use std::sync::Arc;

use idem_core::Error;

use crate::config::Config;
use crate::connection::Link;
use crate::declare::{Declare, Existing};
use crate::options::Options;
use crate::request::{Expected, Request};

/// A RabbitMQ server and virtual host, with a login that works. It keeps no connection open.
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
    /// The server at `amqp://user:password@host:port/vhost`, or `amqps://` for TLS with the system's certificates.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// The same with options.
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

    /// An existing quorum queue, whatever its other arguments.
    ///
    /// # Errors
    /// When it is awaited: it does not exist, or is not a quorum queue, or has a delivery limit (from RabbitMQ 4.0 on also
    /// where it has none of its own and [`delivery_limit_by_policy`](Options::delivery_limit_by_policy) was not said), or
    /// the user may not see to that: the text names the cure.
    pub fn queue(&self, name: impl Into<String>) -> Existing {
        self.existing(name.into(), Expected::Existing)
    }

    /// A durable quorum queue, declared where it does not exist; from RabbitMQ 4.0 on without a delivery limit
    /// (`x-delivery-limit` of -1). An existing one is taken whatever arguments it has beside those that are asked for.
    ///
    /// It is declared and bound again whenever the worker subscribes, so that it comes back after it was deleted.
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
    /// When it is awaited: there is such a queue of another type, with a delivery limit or with another value of an argument, an
    /// exchange that it is to be bound to does not exist, or the user may not do it: the text names the cure.
    pub fn declare(&self, name: impl Into<String>) -> Declare {
        let config = Arc::clone(&self.config);
        Declare { config, name: name.into(), request: Request::new(Expected::Declared) }
    }

    /// An existing queue of which you know that it is a quorum queue. Only for a user without the permission
    /// `configure`, by which RabbitMQ answers what type a queue has.
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// // The user of the workers may only `read` and `write`; `orders` was declared as a quorum queue by another.
    /// let orders = rabbit.queue_unverified("orders").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: it does not exist.
    pub fn queue_unverified(&self, name: impl Into<String>) -> Existing {
        self.existing(name.into(), Expected::Unverified)
    }

    /// An existing classic queue whose messages may be lost: for one that cannot be replaced yet by a quorum queue.
    ///
    /// idem does for its messages all that it does for those of a quorum queue: a copy is skipped, and an ack follows the
    /// commit. But a classic queue gives up, and each start logs a warning of it:
    ///
    /// * Its messages are on one node, and are lost with it. Those that were not published as persistent are lost at its
    ///   restart.
    /// * It counts no deliveries, and only marks a message that comes again (`redelivered`). So the log does not name the
    ///   messages that come again and again, and those are not stored before others.
    /// * [`DeliveryOrder::Queue`](idem_core::DeliveryOrder::Queue) is refused.
    ///
    /// See RabbitMQ's guides "Classic Queues" and "Quorum Queues", section "Feature Comparison".
    ///
    /// ```no_run
    /// # async fn example(rabbit: idem_rabbitmq::RabbitMq) -> Result<(), idem_core::Error> {
    /// // Until its producers publish to a quorum queue. The start logs a warning.
    /// let orders = rabbit.classic_queue("orders").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// When it is awaited: it does not exist; it is a quorum queue (use [`queue`](Self::queue)), a stream, or a queue that
    /// is not durable, is exclusive or is deleted with its last consumer; or the user lacks the permission `configure`.
    pub fn classic_queue(&self, name: impl Into<String>) -> Existing {
        self.existing(name.into(), Expected::Classic)
    }

    fn existing(&self, name: String, expected: Expected) -> Existing {
        Existing { config: Arc::clone(&self.config), name, request: Request::new(expected) }
    }
}

impl Options {
    /// Connects once, to see that the server answers and that the login works.
    ///
    /// # Errors
    /// [`Error::Config`] for a URL, a host or a certificate that cannot be read; [`Error::Broker`] where the server is away,
    /// does not answer within 10 seconds, refuses the login or fails the verification of TLS: with several
    /// [`hosts`](Self::hosts), where that is so of each. The texts name the cure, and each host.
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
