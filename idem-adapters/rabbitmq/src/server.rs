//! A server, and its queues.

use std::sync::Arc;

use idem_core::Error;
use lapin::types::ShortString;

use crate::config::Config;
use crate::connection::Link;
use crate::options::Options;
use crate::queue_type::{self, Expected};
use crate::source::Queue;

/// A RabbitMQ server and virtual host, with a login that works. It keeps no connection open.
#[derive(Clone, Debug)]
pub struct RabbitMq {
    pub(crate) config: Arc<Config>,
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
    pub fn options(url: impl Into<String>) -> Options {
        Options::new(url.into())
    }

    /// An existing quorum queue, whatever its other arguments.
    ///
    /// # Errors
    /// It does not exist, or is no quorum queue, or has a delivery limit (from RabbitMQ 4.0 on also where it has none of its
    /// own and [`delivery_limit_by_policy`](Options::delivery_limit_by_policy) was not said), or the user may not see to that: the text names the cure.
    pub async fn queue(&self, name: impl Into<String>) -> Result<Queue, Error> {
        self.verified(name.into(), Expected::Existing).await
    }

    /// A durable quorum queue, declared where it does not exist; from RabbitMQ 4.0 on without a delivery limit
    /// (`x-delivery-limit` of -1). An existing one is taken whatever its other arguments.
    ///
    /// It is declared again whenever the worker subscribes, so that it comes back after it was deleted; bindings do
    /// not come back.
    ///
    /// # Errors
    /// There is such a queue of another type or with a delivery limit, or the user may not declare it: the text names the cure.
    pub async fn declare(&self, name: impl Into<String>) -> Result<Queue, Error> {
        self.verified(name.into(), Expected::Declared).await
    }

    /// An existing queue of which you know that it is a quorum queue. Only for a user without the permission
    /// `configure`, by which RabbitMQ answers what type a queue has.
    ///
    /// # Errors
    /// It does not exist.
    pub async fn queue_unverified(&self, name: impl Into<String>) -> Result<Queue, Error> {
        self.verified(name.into(), Expected::Unverified).await
    }

    async fn verified(&self, name: String, expected: Expected) -> Result<Queue, Error> {
        // lapin panics on a longer string, and an empty name means the queue that was declared last.
        if name.is_empty() || ShortString::try_new(name.as_str()).is_err() {
            return Err(Error::Refused(format!(
                "a queue's name has 1 to 255 bytes, and this one has {}: give the name of the queue",
                name.len()
            )));
        }
        let limits = self.config.limits(expected).await?;
        let link = Link::open(&self.config, &name).await?;
        let verified = queue_type::verify(&link, &self.config, &name, expected, limits, Default::default()).await;
        link.close().await;
        Ok(Queue::new(Arc::clone(&self.config), name, expected, verified?))
    }
}
