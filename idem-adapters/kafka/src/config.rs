//! Where the brokers are, and how they are spoken to.

use std::fmt;
use std::sync::Arc;

use idem_core::Error;
use rdkafka::ClientConfig;
use rdkafka::config::RDKafkaLogLevel;

use crate::error::{SSL, setting};
use crate::source::Topic;
use crate::wanted::Wanted;
use crate::{connection, property};

/// Kafka brokers that answer, with a login that works. It keeps no connection open.
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
    pub fn options(brokers: impl Into<String>) -> Options {
        Options { brokers: brokers.into(), sasl: None, tls: false, ca: None, properties: Vec::new() }
    }

    /// An existing topic.
    ///
    /// # Errors
    /// It does not exist, or the user may not see it: the text names the cure.
    pub async fn topic(&self, name: impl Into<String>) -> Result<Topic, Error> {
        self.look_for(Wanted::one(&name.into())?).await
    }

    /// Several existing topics in one worker, by one connection and in one group. What begins with `^` is a pattern: a
    /// [regular expression](https://docs.rs/regex/1/regex/#syntax) that takes all topics whose names it matches, also
    /// those that are made later. It need not match to the end of the name, unless it ends with `$`, and never takes what
    /// begins with `__`, which Kafka keeps for itself.
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
        connection::topics(&self.config, &wanted).await?;
        Ok(Topic::new(Arc::clone(&self.config), wanted))
    }
}

/// How to speak to the brokers, before it is tried.
pub struct Options {
    brokers: String,
    sasl: Option<(String, String)>,
    tls: bool,
    ca: Option<Vec<u8>>,
    properties: Vec<(String, String)>,
}

impl Options {
    /// Logs in by SASL with mechanism PLAIN. It sends the password as it is, so that it belongs together with
    /// [`tls`](Self::tls) wherever the network is not trusted. It needs no OpenSSL.
    pub fn sasl_plain(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sasl = Some((user.into(), password.into()));
        self
    }

    /// Encrypts by TLS, and accepts certificates of the system's CAs. Needs the feature `ssl`, which links OpenSSL.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Encrypts by TLS, and trusts the certificates in this PEM and no longer those of the system: for brokers with a
    /// private CA. Needs the feature `ssl`, which links OpenSSL.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self.tls()
    }

    /// Any other setting of librdkafka, by its name and value: timeouts, sizes of fetches, SCRAM, Kerberos.
    /// [`connect`](Self::connect) refuses those that would break the guarantee.
    ///
    /// <https://github.com/confluentinc/librdkafka/blob/v2.12.1/CONFIGURATION.md>
    pub fn property(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.properties.push((name.into(), value.into()));
        self
    }

    /// Connects once, to see that a broker answers and that the login works.
    ///
    /// # Errors
    /// [`Error::Refused`] for a setting that is unknown, not built in or idem's own; [`Error::Broker`] where no broker
    /// answers within 10 seconds, or refuses the login, or fails the verification of TLS. The texts name the cure.
    pub async fn connect(self) -> Result<Kafka, Error> {
        let config = self.config()?;
        connection::connect(&config).await?;
        Ok(Kafka { config: Arc::new(config) })
    }

    pub(crate) fn config(self) -> Result<Config, Error> {
        if self.brokers.split(',').any(|broker| broker.trim().is_empty()) {
            return Err(Error::Refused("there is a broker without an address: write host:port,host:port".to_owned()));
        }
        if self.tls && !cfg!(feature = "ssl") {
            return Err(Error::Refused(format!("TLS was not built in: {SSL}")));
        }
        let mut client = defaults();
        client.set("bootstrap.servers", &self.brokers);
        match (&self.sasl, self.tls) {
            (None, false) => {}
            (None, true) => drop(client.set("security.protocol", "ssl")),
            (Some(_), tls) => {
                client.set("security.protocol", if tls { "sasl_ssl" } else { "sasl_plaintext" });
                client.set("sasl.mechanisms", "PLAIN");
            }
        }
        if let Some((user, password)) = &self.sasl {
            client.set("sasl.username", user).set("sasl.password", password);
        }
        if let Some(pem) = self.ca {
            let pem = String::from_utf8(pem).ok().filter(|pem| pem.contains("-----BEGIN CERTIFICATE-----"));
            client.set("ssl.ca.pem", pem.ok_or_else(no_certificate)?);
        }
        for (name, value) in self.properties {
            property::check(&name)?;
            if name.contains('\0') || value.contains('\0') {
                return Err(Error::Refused("a setting of librdkafka holds no NUL: leave it out".to_owned()));
            }
            client.set(name, value);
        }
        // Here, so that a setting that is wrong is told before anything is connected.
        client.create_native_config().map_err(|error| setting(&error))?;
        Ok(Config { place: self.brokers, client })
    }
}

/// librdkafka takes any text, and then trusts nobody.
fn no_certificate() -> Error {
    Error::Refused(
        "the text given to .tls_ca holds no certificate: give it the content of a .pem file with BEGIN CERTIFICATE in it"
            .to_owned(),
    )
}

/// Shows no password, no certificate and no value of a setting.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("Options")
            .field("brokers", &self.brokers)
            .field("tls", &self.tls)
            .field("properties", &names)
            .finish_non_exhaustive()
    }
}

/// What idem sets otherwise than librdkafka, where the user does not.
fn defaults() -> ClientConfig {
    let mut client = ClientConfig::new();
    client
        .set("client.id", "idem")
        .set("allow.auto.create.topics", "false")
        // By default 100,000 messages and 64 MiB of each partition would lie here unhandled, and a partition that had
        // enough would not be looked at again for a second.
        .set("queued.min.messages", "1000")
        .set("queued.max.messages.kbytes", "4096")
        .set("fetch.queue.backoff.ms", "10")
        // By default a broker that is back is tried only after up to 15 seconds.
        .set("reconnect.backoff.max.ms", "1000")
        .set_log_level(RDKafkaLogLevel::Warning);
    client
}

/// How the brokers are spoken to.
pub(crate) struct Config {
    /// Where they are. It holds no secret.
    pub(crate) place: String,
    pub(crate) client: ClientConfig,
}

/// rdkafka's own list of secrets is not complete.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("brokers", &self.place).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    fn refused(options: Options) -> String {
        let error = options.config().unwrap_err();
        assert!(matches!(error, Error::Refused(_)), "{error:?}");
        let texts = format!("{error} {error:?}");
        assert!(!texts.contains(SENTINEL), "{texts}");
        texts
    }

    #[test]
    fn a_setting_that_would_break_the_guarantee_is_refused() {
        for name in [
            "enable.auto.commit",
            "enable.auto.offset.store",
            "auto.offset.reset",
            "partition.assignment.strategy",
            "isolation.level",
            "group.id",
            "group.protocol",
        ] {
            let said = refused(Kafka::options("h:1").property(name, SENTINEL));
            assert!(said.contains(name) && said.contains("idem's own"), "{said}");
        }
        let said = refused(Kafka::options("h:1").property("auto.offset.reset", "earliest"));
        assert!(said.contains(".start("), "{said}");
    }

    #[test]
    fn a_setting_that_does_not_exist_or_cannot_be_is_named_without_its_value() {
        let said = refused(Kafka::options("h:1").property("no.such.setting", SENTINEL));
        assert!(said.contains("no.such.setting"), "{said}");
        let said = refused(Kafka::options("h:1").property("session.timeout.ms", SENTINEL));
        assert!(said.contains("session.timeout.ms"), "{said}");
        let said = refused(Kafka::options("h:1").property("client.id", "s3ntinel\0"));
        assert!(said.contains("NUL"), "{said}");
    }

    #[test]
    fn a_broker_without_an_address_is_refused() {
        for brokers in ["", "h:1,,h:2", " "] {
            assert!(refused(Kafka::options(brokers)).contains("host:port"));
        }
    }

    #[cfg(not(feature = "ssl"))]
    #[test]
    fn tls_is_refused_where_it_was_not_built_in() {
        assert!(refused(Kafka::options("h:1").tls()).contains("kafka-ssl"));
        assert!(refused(Kafka::options("h:1").tls_ca(SENTINEL)).contains("kafka-ssl"));
        let said = refused(Kafka::options("h:1").property("ssl.key.password", SENTINEL));
        assert!(said.contains("kafka-ssl"), "{said}");
    }

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
