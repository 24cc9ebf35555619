//! The brokers, and their topics.

use std::sync::Arc;

use idem_core::Error;

use crate::config::Config;
use crate::connection;
use crate::options::Options;
use crate::source::Topic;
use crate::wanted::Wanted;

/// Kafka brokers that answer, with a login that works. It keeps no connection open.
///
/// ```no_run
/// # use idem_core::{Error, Store, Worker};
/// # use idem_kafka::Kafka;
/// # async fn open<S: Store>(store: S) -> Result<(), Error> {
/// let kafka = Kafka::connect("kafka-1:9092,kafka-2:9092").await?;
/// // Each worker is a member of the group of its own name.
/// let orders = Worker::new("billing-orders", store.clone(), kafka.topic("orders").await?);
/// let payments = Worker::new("billing-payments", store, kafka.topic("payments").await?);
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Kafka {
    config: Arc<Config>,
}

impl Kafka {
    /// The brokers at `host:port`, several of them with commas between. Any one of them knows the others.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect(brokers: impl Into<String>) -> Result<Self, Error> {
        Self::options(brokers).connect().await
    }

    /// The same with options.
    ///
    /// ```no_run
    /// # use idem_kafka::Kafka;
    /// # async fn example(password: String, certificate: Vec<u8>, key: Vec<u8>) -> Result<(), idem_core::Error> {
    /// // SCRAM by TLS, with the certificates of the system's CAs.
    /// let scram = Kafka::options("kafka:9093")
    ///     .tls()
    ///     .sasl_plain("billing", password)
    ///     .property("sasl.mechanisms", "SCRAM-SHA-512")
    ///     .connect()
    ///     .await?;
    /// // A certificate instead of a password.
    /// let mutual = Kafka::options("kafka:9093").tls_identity(certificate, key).connect().await?;
    /// # Ok(()) }
    /// ```
    pub fn options(brokers: impl Into<String>) -> Options {
        Options::new(brokers.into())
    }

    /// An existing topic.
    ///
    /// # Errors
    /// It does not exist, or the user may not see it: the text names the cure.
    pub async fn topic(&self, name: impl Into<String>) -> Result<Topic, Error> {
        self.look_for(Wanted::one(&name.into())?).await
    }

    /// Several existing topics in one worker, by one connection and in one group. A name that begins with `^` is a pattern: a
    /// [regular expression](https://docs.rs/regex/1/regex/#syntax) that takes all topics whose names it matches, also
    /// those that are made later. It need not match to the end of the name, unless it ends with `$`, and never takes what
    /// begins with `__`, which Kafka keeps for itself.
    ///
    /// ```no_run
    /// # async fn example(kafka: idem_kafka::Kafka) -> Result<(), idem_core::Error> {
    /// // `payments`, and one topic for each country: `orders.de`, `orders.fr`, ..
    /// let source = kafka.topics(["payments", r"^orders\.[a-z]{2}$"]).await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// A topic that is named does not exist, or the user may not see it; a pattern cannot be read; nothing is matched. The
    /// text names the cure.
    pub async fn topics<T: Into<String>>(&self, names: impl IntoIterator<Item = T>) -> Result<Topic, Error> {
        let names: Vec<String> = names.into_iter().map(Into::into).collect();
        self.look_for(Wanted::several(&names)?).await
    }

    async fn look_for(&self, wanted: Wanted) -> Result<Topic, Error> {
        let wanted = Arc::new(wanted);
        connection::topics(&self.config.current().await?, &wanted).await?;
        Ok(Topic::new(Arc::clone(&self.config), wanted))
    }
}

impl Options {
    /// Connects once, to see that a broker answers and that the login works.
    ///
    /// # Errors
    /// [`Error::Config`] for a setting that is unknown, not built in or idem's own; [`Error::Broker`] where no broker
    /// answers within 10 seconds, or refuses the login, or fails the verification of TLS. The texts name the cure.
    pub async fn connect(self) -> Result<Kafka, Error> {
        let config = self.config()?;
        connection::connect(&config.current().await?).await?;
        Ok(Kafka { config: Arc::new(config) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    #[test]
    fn nothing_shows_a_secret() {
        let options = || Kafka::options("h:1").sasl_plain("user", SENTINEL).property("sasl.password", SENTINEL);
        let config = options().config().unwrap();
        let shown =
            [format!("{:?}", options()), format!("{config:?}"), format!("{:?}", Kafka { config: Arc::new(config) })];
        for text in shown {
            assert!(!text.contains(SENTINEL) && text.contains("h:1"), "{text}");
        }
    }
}
