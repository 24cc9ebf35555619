//! Connection options.

use std::fmt;
use std::mem::discriminant;

use idem_core::{BoxError, Callback, Error};

use crate::address;
use crate::config::Config;
use crate::credentials::{Credentials, Login, Token, Tokens};
use crate::error::{SSL, setting};
use crate::property;

/// The options of a connection to the brokers.
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
    login: Option<Login>,
    /// Whether logins of two kinds were given.
    has_two_logins: bool,
    tls: bool,
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Vec<u8>)>,
    properties: Vec<(String, String)>,
}

impl Options {
    pub(crate) fn new(brokers: String) -> Self {
        Self {
            brokers,
            login: None,
            has_two_logins: false,
            tls: false,
            ca: None,
            identity: None,
            properties: Vec::new(),
        }
    }

    /// Logs in with the SASL mechanism PLAIN. PLAIN sends the password in clear text, so combine it with
    /// [`tls`](Self::tls) unless the network is trusted. Does not need OpenSSL.
    ///
    /// Only one login may be given: together with [`sasl_credentials`](Self::sasl_credentials) or
    /// [`sasl_oauthbearer`](Self::sasl_oauthbearer), [`connect`](Self::connect) returns an error.
    pub fn sasl_plain(self, user: impl Into<String>, password: impl Into<String>) -> Self {
        self.login(Login::Plain(user.into(), password.into()))
    }

    /// Logs in like [`sasl_plain`](Self::sasl_plain), with the credentials that the callback returns, so that a
    /// password may change while a worker runs. The callback is called whenever clients are created: to connect, to
    /// look up topics, and when a worker starts or subscribes again. librdkafka does not call it when an existing
    /// client reconnects: if the brokers refuse the client's credentials, the subscription ends with an error, and the
    /// worker subscribes again with the credentials that the callback then returns. Connections that are logged in stay
    /// logged in.
    ///
    /// For SCRAM, set the property `sasl.mechanisms` (`SCRAM-SHA-512`), which needs the feature `ssl`.
    ///
    /// The callback has a time limit of 10 seconds. An error that it returns is reported as a connection error, with
    /// its text, so the text must not contain a secret.
    ///
    /// Only one login may be given: together with [`sasl_plain`](Self::sasl_plain) or
    /// [`sasl_oauthbearer`](Self::sasl_oauthbearer), [`connect`](Self::connect) returns an error. If this is called
    /// twice, the last callback is used.
    pub fn sasl_credentials<F, A>(self, get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.login(Login::Credentials(Callback::new(get)))
    }

    /// Logs in with the SASL mechanism OAUTHBEARER and the token that the callback returns, for example with IAM to
    /// Amazon MSK. The callback is called when clients are created, and again before a token expires, after four fifths
    /// of its lifetime. Needs the feature `ssl`, even without TLS.
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
    /// The callback has a time limit of 10 seconds and runs as a task of the runtime in which the worker was started.
    /// If it returns an error while a token is still valid, the error is logged and the callback is called again.
    /// Otherwise the error is a connection error. Both contain its text, so the text must not contain a secret.
    ///
    /// Only one login may be given: together with [`sasl_plain`](Self::sasl_plain) or
    /// [`sasl_credentials`](Self::sasl_credentials), [`connect`](Self::connect) returns an error. If this is called
    /// twice, the last callback is used.
    pub fn sasl_oauthbearer<F, A>(self, get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Token, BoxError>> + Send + 'static,
    {
        self.login(Login::Token(Callback::new(get)))
    }

    fn login(mut self, login: Login) -> Self {
        let earlier = self.login.replace(login);
        let is_other = |earlier: &Login| Some(discriminant(earlier)) != self.login.as_ref().map(discriminant);
        self.has_two_logins |= earlier.as_ref().is_some_and(is_other);
        self
    }

    /// Enables TLS, and presents this certificate to brokers that ask for one. `certificate` is a PEM text with the
    /// certificate and any intermediate certificates; `key` is a PEM text with its private key. Needs the feature
    /// `ssl`, which links OpenSSL.
    pub fn tls_identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.identity = Some((certificate.into(), key.into()));
        self.tls()
    }

    /// Enables TLS, and trusts the CAs of the system. Needs the feature `ssl`, which links OpenSSL.
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Enables TLS, and trusts the certificates in this PEM text instead of those of the system, for brokers with a
    /// private CA. Needs the feature `ssl`, which links OpenSSL.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.ca = Some(pem.into());
        self.tls()
    }

    /// Sets any other librdkafka property by its name: timeouts, fetch sizes, SCRAM, Kerberos.
    /// [`connect`](Self::connect) refuses properties that would break the guarantee.
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
        if self.has_two_logins {
            return Err(Error::Config(
                "two logins were given for Kafka: call only one of `.sasl_plain(..)`, `.sasl_credentials(..)` and \
                 `.sasl_oauthbearer(..)`"
                    .to_owned(),
            ));
        }
        let mechanism = match &self.login {
            Some(Login::Token(_)) if !cfg!(feature = "ssl") => {
                return Err(Error::Config(format!("OAUTHBEARER was not built in: {SSL}")));
            }
            Some(Login::Token(_)) => Some("OAUTHBEARER"),
            Some(Login::Plain(..) | Login::Credentials(_)) => Some("PLAIN"),
            None => None,
        };
        match (mechanism, self.tls) {
            (None, false) => {}
            (None, true) => drop(client.set("security.protocol", "ssl")),
            (Some(mechanism), tls) => {
                client.set("security.protocol", if tls { "sasl_ssl" } else { "sasl_plaintext" });
                client.set("sasl.mechanisms", mechanism);
            }
        }
        if let Some(Login::Plain(user, password)) = &self.login {
            client.set("sasl.username", user).set("sasl.password", password);
        }
        let text = |pem: Vec<u8>, holds: &str| String::from_utf8(pem).ok().filter(|pem| pem.contains(holds));
        if let Some((certificate, key)) = self.identity {
            let certificate = text(certificate, "-----BEGIN CERTIFICATE-----").ok_or_else(no_identity)?;
            let key = text(key, "PRIVATE KEY-----").ok_or_else(no_identity)?;
            client.set("ssl.certificate.pem", certificate).set("ssl.key.pem", key);
        }
        if let Some(pem) = self.ca {
            client.set("ssl.ca.pem", text(pem, "-----BEGIN CERTIFICATE-----").ok_or_else(no_certificate)?);
        }
        for (name, value) in self.properties {
            property::check(&name)?;
            if name.contains('\0') || value.contains('\0') {
                return Err(Error::Config("a setting of librdkafka must not contain NUL: leave it out".to_owned()));
            }
            client.set(name, value);
        }
        // Checked here, so that a wrong setting is reported before anything is connected.
        client.create_native_config().map_err(|error| setting(&error))?;
        Ok(Config { place: self.brokers, client, login: self.login, tokens: Tokens::default() })
    }
}

/// librdkafka accepts any text, and then trusts no certificate.
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

/// Does not show passwords, certificates or property values.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.properties.iter().map(|(name, _)| name).collect();
        f.debug_struct("Options")
            // A refused address may contain a password.
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
mod tests;
