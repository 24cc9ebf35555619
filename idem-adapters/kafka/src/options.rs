//! How to speak to the brokers.

use std::fmt;

use idem_core::{BoxError, Error};

use crate::address;
use crate::config::Config;
use crate::credentials::{Credentials, Getter, Login, Token, Tokens};
use crate::error::{SSL, setting};
use crate::property;

/// How to speak to the brokers, before it is tried.
///
/// ```no_run
/// # use idem_kafka::Kafka;
/// # async fn connect(password: String, ca: Vec<u8>) -> Result<(), idem_core::Error> {
/// let kafka = Kafka::options("kafka-1:9093,kafka-2:9093")
///     .sasl_plain("billing", password)
///     .tls_ca(ca)
///     .property("client.rack", "eu-central-1a")
///     .connect()
///     .await?;
/// let orders = kafka.topic("orders").await?;
/// # Ok(()) }
/// ```
pub struct Options {
    brokers: String,
    sasl: Option<(String, String)>,
    login: Option<Login>,
    tls: bool,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    properties: Vec<(String, String)>,
}

impl Options {
    pub(crate) fn new(brokers: String) -> Self {
        Self { brokers, sasl: None, login: None, tls: false, ca: None, identity: None, properties: Vec::new() }
    }

    /// Logs in by SASL with mechanism PLAIN. It sends the password as it is, so that it belongs together with
    /// [`tls`](Self::tls) wherever the network is not trusted. It needs no OpenSSL.
    pub fn sasl_plain(mut self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.sasl = Some((user.into(), password.into()));
        self
    }

    /// The same with what this returns, so that a password may change while a worker runs. It is called whenever clients are
    /// made: to connect, to look at topics, and when a worker starts or opens its source again. librdkafka asks nobody when it
    /// connects within the life of a client: if the brokers refuse what it has then, the subscription ends with an error, and
    /// the worker opens it again with what the callback returns then. Connections that are logged in stay so.
    ///
    /// For SCRAM say so by the property `sasl.mechanisms` (`SCRAM-SHA-512`), which needs the feature `ssl`.
    ///
    /// It has 10 seconds. An error of it is one of the connection and is shown with what it says: it must hold no secret.
    pub fn sasl_credentials<F, A>(mut self, get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.login = Some(Login::Credentials(Getter::new(get)));
        self
    }

    /// Logs in by SASL with mechanism OAUTHBEARER and the token that this returns, as Amazon's MSK wants it for IAM. It is
    /// called when clients are made, and again before a token expires, when four fifths of its time have passed. Needs the
    /// feature `ssl`, also where there is no TLS.
    ///
    /// ```no_run
    /// # use idem_kafka::{Kafka, Token};
    /// # use std::time::SystemTime;
    /// # async fn signed() -> std::io::Result<(String, SystemTime)> { Ok((String::new(), SystemTime::now())) }
    /// let options = Kafka::options("b-1.msk.example:9098").tls().sasl_oauthbearer(async || {
    ///     // For MSK: `generate_auth_token` of the crate aws-msk-iam-sasl-signer.
    ///     let (token, expires) = signed().await?;
    ///     Ok(Token::new(token, "", expires))
    /// });
    /// ```
    ///
    /// It has 10 seconds, and runs as a task of the runtime in which the worker was started. An error while a token is valid
    /// still is logged, and it is called again; otherwise it is one of the connection. It is shown with what it says: it must
    /// hold no secret.
    pub fn sasl_oauthbearer<F, A>(mut self, get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Token, BoxError>> + Send + 'static,
    {
        self.login = Some(Login::Token(Getter::new(get)));
        self
    }

    /// Encrypts by TLS, and shows this certificate to brokers that ask for one: a PEM with the certificate, and those between
    /// it and its CA, and a PEM with its private key. Needs the feature `ssl`, which links OpenSSL.
    pub fn tls_identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self.tls()
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

    pub(crate) fn config(self) -> Result<Config, Error> {
        self.brokers.split(',').try_for_each(|broker| address::check(broker.trim()))?;
        if self.tls && !cfg!(feature = "ssl") {
            return Err(Error::Config(format!("TLS was not built in: {SSL}")));
        }
        let mut client = property::defaults();
        client.set("bootstrap.servers", &self.brokers);
        let mechanism = match (&self.sasl, &self.login) {
            (Some(_), Some(_)) => {
                return Err(Error::Config("two logins were given for Kafka: leave one of them out".to_owned()));
            }
            (None, Some(Login::Token(_))) if !cfg!(feature = "ssl") => {
                return Err(Error::Config(format!("OAUTHBEARER was not built in: {SSL}")));
            }
            (None, Some(Login::Token(_))) => Some("OAUTHBEARER"),
            (Some(_), None) | (None, Some(Login::Credentials(_))) => Some("PLAIN"),
            (None, None) => None,
        };
        match (mechanism, self.tls) {
            (None, false) => {}
            (None, true) => drop(client.set("security.protocol", "ssl")),
            (Some(mechanism), tls) => {
                client.set("security.protocol", if tls { "sasl_ssl" } else { "sasl_plaintext" });
                client.set("sasl.mechanisms", mechanism);
            }
        }
        if let Some((user, password)) = &self.sasl {
            client.set("sasl.username", user).set("sasl.password", password);
        }
        if let Some((certificate, key)) = self.identity {
            let text = |pem: Vec<u8>, holds: &str| String::from_utf8(pem).ok().filter(|pem| pem.contains(holds));
            let certificate = text(certificate, "-----BEGIN CERTIFICATE-----").ok_or_else(no_identity)?;
            let key = text(key, "PRIVATE KEY-----").ok_or_else(no_identity)?;
            client.set("ssl.certificate.pem", certificate).set("ssl.key.pem", key);
        }
        if let Some(pem) = self.ca {
            let pem = String::from_utf8(pem).ok().filter(|pem| pem.contains("-----BEGIN CERTIFICATE-----"));
            client.set("ssl.ca.pem", pem.ok_or_else(no_certificate)?);
        }
        for (name, value) in self.properties {
            property::check(&name)?;
            if name.contains('\0') || value.contains('\0') {
                return Err(Error::Config("a setting of librdkafka must not contain NUL: leave it out".to_owned()));
            }
            client.set(name, value);
        }
        // Here, so that a setting that is wrong is told before anything is connected.
        client.create_native_config().map_err(|error| setting(&error))?;
        Ok(Config { place: self.brokers, client, login: self.login, tokens: Tokens::default() })
    }
}

/// librdkafka takes any text, and then trusts nobody.
fn no_certificate() -> Error {
    Error::Config(
        "the text given to .tls_ca holds no certificate: give it the content of a .pem file with BEGIN CERTIFICATE in it"
            .to_owned(),
    )
}

fn no_identity() -> Error {
    Error::Config(
        "the texts given to .tls_identity are not a certificate and its private key: give it the content of a .pem file with \
         BEGIN CERTIFICATE in it, and of one with BEGIN PRIVATE KEY"
            .to_owned(),
    )
}

/// Shows no password, no certificate and no value of a setting.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("Options")
            // An address that is refused may have a password in it.
            .field(
                "brokers",
                &self.brokers.split(',').all(|broker| address::check(broker.trim()).is_ok()).then_some(&self.brokers),
            )
            .field("tls", &self.tls)
            .field("properties", &names)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    fn options(brokers: &str) -> Options {
        Options::new(brokers.to_owned())
    }

    fn refused(options: Options) -> String {
        let error = options.config().unwrap_err();
        assert!(matches!(error, Error::Config(_)), "{error:?}");
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
            let said = refused(options("h:1").property(name, SENTINEL));
            assert!(said.contains(name) && said.contains("idem's own"), "{said}");
        }
        let said = refused(options("h:1").property("auto.offset.reset", "earliest"));
        assert!(said.contains(".start("), "{said}");
    }

    #[test]
    fn a_setting_that_does_not_exist_or_cannot_be_is_named_without_its_value() {
        let said = refused(options("h:1").property("no.such.setting", SENTINEL));
        assert!(said.contains("no.such.setting"), "{said}");
        let said = refused(options("h:1").property("session.timeout.ms", SENTINEL));
        assert!(said.contains("session.timeout.ms"), "{said}");
        let said = refused(options("h:1").property("client.id", "s3ntinel\0"));
        assert!(said.contains("NUL"), "{said}");
    }

    #[test]
    fn a_refused_address_is_not_shown() {
        let options = options("h:1,user:s3ntinel@h:2");
        assert!(!format!("{options:?}").contains(SENTINEL), "{options:?}");
        refused(options);
    }

    #[test]
    fn a_broker_without_an_address_is_refused() {
        for brokers in ["", "h:1,,h:2", " "] {
            assert!(refused(options(brokers)).contains("host:port"));
        }
    }

    #[cfg(not(feature = "ssl"))]
    #[test]
    fn tls_is_refused_where_it_was_not_built_in() {
        let token = async || Ok(Token::new(SENTINEL, "", std::time::SystemTime::now()));
        assert!(refused(options("h:1").sasl_oauthbearer(token)).contains("kafka-ssl"));
        assert!(refused(options("h:1").tls()).contains("kafka-ssl"));
        assert!(refused(options("h:1").tls_ca(SENTINEL)).contains("kafka-ssl"));
        let said = refused(options("h:1").property("ssl.key.password", SENTINEL));
        assert!(said.contains("kafka-ssl"), "{said}");
    }

    #[test]
    fn two_logins_are_refused() {
        let plain = options("h:1").sasl_plain("user", SENTINEL);
        let said = refused(plain.sasl_credentials(async || Ok(Credentials::new("user", SENTINEL))));
        assert!(said.contains("two logins"), "{said}");
    }

    #[cfg(feature = "ssl")]
    #[test]
    fn an_identity_that_is_none_is_refused_and_not_repeated() {
        let said = refused(options("h:1").tls_identity("nonsense", SENTINEL));
        assert!(said.contains(".tls_identity"), "{said}");
    }
}
