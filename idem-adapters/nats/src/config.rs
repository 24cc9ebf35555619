//! Where the server is, and how it is spoken to.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use async_nats::ConnectOptions;
use async_nats::rustls::ClientConfig;
use idem_core::{BoxError, Error};

use crate::address::{Address, Login};
use crate::connection::Connection;
use crate::credentials::{Credentials, Getter, user};
use crate::error;
use crate::stream::Stream;
use crate::tls;

/// A NATS server with JetStream, or a cluster of them, with a login that works. It keeps no connection open.
#[derive(Clone, Debug)]
pub struct Nats {
    config: Arc<Config>,
}

impl Nats {
    /// The server at `nats://host:4222`, or `tls://` for TLS with the system's certificates. A login stands in front of
    /// the host: `user:password@` or `token@`. Several servers of a cluster stand with commas between.
    ///
    /// # Errors
    /// As [`Options::connect`].
    pub async fn connect(url: impl Into<String>) -> Result<Self, Error> {
        Self::options(url).connect().await
    }

    /// The same with options.
    pub fn options(url: impl Into<String>) -> Options {
        Options { url: url.into(), tls_ca: None, tls_identity: None, login: None, inbox_prefix: None, domain: None }
    }

    /// An existing stream.
    ///
    /// # Errors
    /// It does not exist, or the account has no JetStream: the text names the cure.
    pub async fn stream(&self, name: impl Into<String>) -> Result<Stream, Error> {
        let name = name.into();
        if let Some(why) = unfit(&name) {
            return Err(Error::Refused(format!(
                "no stream has the name {name:?}, since it {why}: give the name of one"
            )));
        }
        let connection = Connection::open(&self.config, &name).await?;
        let found = connection.jetstream().get_stream(&name).await;
        found.map_err(|error| error::stream(&name, &self.config, error))?;
        Ok(Stream::new(Arc::clone(&self.config), name))
    }
}

/// Why NATS does not take this as the name of a stream or a consumer: the names are tokens of subjects and parts of
/// paths (<https://docs.nats.io/running-a-nats-service/nats_admin/jetstream_admin/naming>).
pub(crate) fn unfit(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        return Some("is empty");
    }
    if name.len() > 255 {
        return Some("has more than 255 bytes");
    }
    let refused = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '.' | '*' | '>' | '/' | '\\');
    name.contains(refused).then_some("has white space or one of . * > / \\ in it")
}

/// How to speak to a server, before it is tried.
pub struct Options {
    url: String,
    tls_ca: Option<Vec<u8>>,
    tls_identity: Option<(Vec<u8>, Vec<u8>)>,
    login: Option<Secret>,
    inbox_prefix: Option<String>,
    domain: Option<String>,
}

/// A login beside the URL.
#[derive(Clone)]
pub(crate) enum Secret {
    /// Read anew for each connection, so that the file can be replaced while the worker runs.
    File(PathBuf),
    Seed(String),
    Token(String),
    Password(String, String),
    /// Had anew for each connection.
    Got(Getter),
}

impl Options {
    /// Logs in with this file of credentials (`.creds`: a JWT and a seed). It is read again for each connection.
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.login = Some(Secret::File(path.into()));
        self
    }

    /// Logs in with the nkey of this seed, the text that begins with `SU`.
    pub fn nkey(mut self, seed: impl Into<String>) -> Self {
        self.login = Some(Secret::Seed(seed.into()));
        self
    }

    /// Logs in with what this returns. It is called for each connection, so that a token or a JWT that expires is had anew: the
    /// worker makes a connection when it starts and whenever the one before was lost, as it is when the server ends it
    /// because a JWT has expired. What it takes counts against the 10 seconds in which a connection has to be there.
    ///
    /// ```no_run
    /// # use idem_nats::{Credentials, Nats};
    /// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
    /// let options = Nats::options("tls://nats.example").credentials(async || Ok(Credentials::token(token().await?)));
    /// ```
    ///
    /// An error of it is one of the connection, tried again like others by a worker that runs, and shown with what it says:
    /// it must hold no secret.
    pub fn credentials<F, A>(mut self, get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.login = Some(Secret::Got(Getter::new(get)));
        self
    }

    /// Shows this certificate to a server that asks for one: a PEM with the certificate, and those between it and its CA, and a
    /// PEM with its private key. A server with `verify_and_map` takes it for the login.
    pub fn tls_identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls_identity = Some((certificate.into(), key.into()));
        self
    }

    /// Trusts the certificates in this PEM, and no longer those of the system: for a server with a private CA.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls_ca = Some(pem.into());
        self
    }

    /// Receives on subjects below this one, default `_INBOX`: for a login that may subscribe to others only.
    pub fn inbox_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.inbox_prefix = Some(prefix.into());
        self
    }

    /// Uses the JetStream of this domain instead of that of the server which is connected to: the hub's from a leaf node, say,
    /// or a leaf's from its hub.
    ///
    /// A login then needs to publish to `$JS.<domain>.API.` where it otherwise needs `$JS.API.`.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    /// Connects once, to see that the server answers and that the login works.
    ///
    /// # Errors
    /// [`Error::Refused`] for a URL, a file, a seed or a certificate that cannot be read; [`Error::Broker`] where the
    /// server is away, does not answer within 10 seconds, refuses the login or fails the verification of TLS. The texts
    /// name the cure.
    pub async fn connect(self) -> Result<Nats, Error> {
        let config = self.config()?;
        Connection::open(&config, "connect").await?;
        Ok(Nats { config: Arc::new(config) })
    }

    pub(crate) fn config(self) -> Result<Config, Error> {
        let (address, login) = Address::parse(&self.url)?;
        let encrypted = address.encrypted();
        if (self.tls_ca.is_some() || self.tls_identity.is_some()) && !encrypted {
            return Err(Error::Refused(
                "a CA or a certificate was given for TLS, and the URL asks for a connection without it: write tls://"
                    .to_owned(),
            ));
        }
        let login = match (self.login, login) {
            (None, Login::None) => None,
            (None, Login::Token(token)) => Some(Secret::Token(token)),
            (None, Login::Password(user, word)) => Some(Secret::Password(user, word)),
            (Some(login), Login::None) => Some(login),
            (Some(_), _) => {
                return Err(Error::Refused(
                    "there is a login in the URL and another beside it: leave one of them out".to_owned(),
                ));
            }
        };
        if let Some(Secret::Seed(seed)) = &login {
            user(seed)?;
        }
        if let Some(prefix) = &self.inbox_prefix
            && (prefix.is_empty() || prefix.contains(['*', '>', ' ']) || prefix.ends_with('.'))
        {
            return Err(Error::Refused(format!(
                "{prefix:?} cannot stand before a subject: write one like `_INBOX_billing`"
            )));
        }
        let api = match &self.domain {
            None => "$JS.API".into(),
            Some(domain) => match unfit(domain) {
                None => format!("$JS.{domain}.API").into(),
                Some(why) => {
                    return Err(Error::Refused(format!(
                        "no domain of JetStream has the name {domain:?}, since it {why}: give the one in the block \
                         `jetstream` of the server's configuration"
                    )));
                }
            },
        };
        // Also where the URL does not ask for it: the server may.
        let identity = self.tls_identity.as_ref().map(|(certificate, key)| (&**certificate, &**key));
        let tls = match tls::client(self.tls_ca.as_deref(), identity) {
            Err(_) if !encrypted => None,
            tls => Some(tls?),
        };
        Ok(Config { address, login, encrypted, tls, inbox_prefix: self.inbox_prefix, api })
    }
}

/// Shows neither the URL nor the login.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("inbox_prefix", &self.inbox_prefix)
            .field("domain", &self.domain)
            .finish_non_exhaustive()
    }
}

/// How the server is spoken to.
pub(crate) struct Config {
    pub(crate) address: Address,
    login: Option<Secret>,
    encrypted: bool,
    tls: Option<ClientConfig>,
    inbox_prefix: Option<String>,
    /// What the subjects of JetStream's own requests begin with.
    pub(crate) api: Arc<str>,
}

impl Config {
    /// For async-nats.
    pub(crate) async fn options(&self) -> Result<ConnectOptions, Error> {
        let options = ConnectOptions::new().require_tls(self.encrypted);
        let options = match &self.login {
            None => options,
            Some(Secret::Seed(seed)) => options.nkey(seed.clone()),
            Some(Secret::Token(token)) => options.token(token.clone()),
            Some(Secret::Password(user, word)) => options.user_and_password(user.clone(), word.clone()),
            Some(Secret::Got(getter)) => getter.get(&self.address).await?.give(options)?,
            Some(Secret::File(path)) => options.credentials_file(path).await.map_err(|error| {
                Error::Refused(format!(
                    "the credentials in {} cannot be read ({}): give the path of a .creds file, which holds a JWT and \
                     a seed",
                    path.display(),
                    error.kind()
                ))
            })?,
        };
        let options = if let Some(tls) = &self.tls { options.tls_client_config(tls.clone()) } else { options };
        Ok(if let Some(prefix) = &self.inbox_prefix { options.custom_inbox_prefix(prefix) } else { options })
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").field("address", &self.address).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use nkeys::KeyPair;

    use super::*;

    #[test]
    fn no_public_configuration_shows_a_secret() {
        let seed = KeyPair::new_user().seed().unwrap();
        for options in [
            Nats::options("nats://u:s3ntinel@h"),
            Nats::options("nats://s3ntinel@h"),
            Nats::options("tls://h").nkey(&seed).tls_ca("s3ntinel"),
        ] {
            let shown = format!("{options:?}");
            assert!(!shown.contains("ntinel") && !shown.contains(&seed), "{shown}");
        }
        let token = Credentials::token("s3ntinel");
        assert_eq!(format!("{token:?}"), "Credentials(token)");
        let got = Nats::options("nats://h").credentials(async || Ok(Credentials::password("u", "s3ntinel")));
        for options in [Nats::options("nats://u:s3ntinel@h"), Nats::options("nats://h").nkey(&seed), got] {
            let config = Arc::new(options.config().unwrap());
            let stream = Stream::new(Arc::clone(&config), "ORDERS".to_owned());
            for shown in [format!("{config:?}"), format!("{:?}", Nats { config }), format!("{stream:?}")] {
                assert!(!shown.contains("ntinel") && !shown.contains(&seed) && shown.contains("nats://h"), "{shown}");
            }
        }
    }

    #[test]
    fn a_seed_that_is_none_is_refused_and_not_repeated() {
        for seed in ["s3ntinel".to_owned(), KeyPair::new_account().seed().unwrap(), String::new()] {
            let error = Nats::options("nats://h").nkey(&seed).config().unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(".nkey") && (seed.is_empty() || !shown.contains(&seed)), "{shown}");
        }
    }

    #[test]
    fn two_logins_are_refused() {
        let error = Nats::options("nats://u:s3ntinel@h").credentials_file("f").config().unwrap_err().to_string();
        assert!(error.contains("leave one of them out") && !error.contains("ntinel"), "{error}");
    }

    #[test]
    fn a_domain_that_can_be_none_is_refused() {
        for domain in ["", "a.b", "hub >"] {
            let error = Nats::options("nats://h").domain(domain).config().unwrap_err().to_string();
            assert!(error.contains(&format!("{domain:?}")), "{error}");
        }
    }

    #[test]
    fn names_that_nats_does_not_take_are_known() {
        for name in ["", "a.b", "a b", "a*", ">", "a/b", "a\\b", "a\u{0}", &"n".repeat(256)] {
            assert!(unfit(name).is_some(), "{name}");
        }
        for name in ["ORDERS", "billing-v2", "b_1", &"n".repeat(255)] {
            assert_eq!(unfit(name), None, "{name}");
        }
    }
}
