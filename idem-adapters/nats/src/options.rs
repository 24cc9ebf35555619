//! The options for connecting to a server.

use std::fmt;
use std::path::PathBuf;

use idem_core::{BoxError, Callback, Error};

use crate::address::Address;
use crate::config::{Config, Secret};
use crate::credentials::{Credentials, Kind, user};
use crate::name::invalid;
use crate::tls;

/// Options for connecting to a server, made by [`Nats::options`](crate::Nats::options).
///
/// ```no_run
/// # use idem_nats::Nats;
/// # async fn connect(ca: Vec<u8>) -> Result<(), idem_core::Error> {
/// let nats = Nats::options("tls://nats-1:4222,tls://nats-2:4222")
///     .credentials_file("/run/secrets/billing.creds")
///     .tls_ca(ca)
///     .connect()
///     .await?;
/// let orders = nats.stream("orders").await?;
/// # Ok(()) }
/// ```
pub struct Options {
    url: String,
    tls_ca: Option<Vec<u8>>,
    tls_identity: Option<(Vec<u8>, Vec<u8>)>,
    login: Option<Secret>,
    inbox_prefix: Option<String>,
    domain: Option<String>,
}

impl Options {
    pub(crate) fn new(url: String) -> Self {
        Self { url, tls_ca: None, tls_identity: None, login: None, inbox_prefix: None, domain: None }
    }

    /// Logs in with this credentials file (`.creds`: a JWT and a seed). It is read again for each connection.
    pub fn credentials_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.login = Some(Secret::File(path.into()));
        self
    }

    /// Logs in with the nkey of this seed, which begins with `SU`.
    pub fn nkey(mut self, seed: impl Into<String>) -> Self {
        self.login = Some(Secret::Given(Credentials::nkey(seed)));
        self
    }

    /// Logs in with the credentials that this callback returns. It is called for each connection, so that a token or a
    /// JWT that expires is replaced. The worker opens a connection when it starts and whenever the previous one was
    /// lost, for example because the server closed it when a JWT expired. The callback's time counts towards the 10
    /// seconds in which a connection must be made.
    ///
    /// ```no_run
    /// # use idem_nats::{Credentials, Nats};
    /// # async fn token() -> std::io::Result<String> { Ok(String::new()) }
    /// let options = Nats::options("tls://nats.example").credentials(async || Ok(Credentials::token(token().await?)));
    /// ```
    ///
    /// If the callback fails, the connection fails; a running worker tries again, as after other failures. The
    /// callback's error is shown with its text, so it must not contain secrets.
    pub fn credentials<F, A>(mut self, get: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.login = Some(Secret::Got(Callback::new(get)));
        self
    }

    /// Presents this certificate to a server that requests one. `certificate` is a PEM with the certificate and the
    /// intermediate certificates up to its CA; `key` is a PEM with its private key. A server with `verify_and_map` uses
    /// the certificate as the login.
    pub fn tls_identity(mut self, certificate: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls_identity = Some((certificate.into(), key.into()));
        self
    }

    /// Trusts the certificates in this PEM instead of the system's: for a server with a private CA.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls_ca = Some(pem.into());
        self
    }

    /// Receives on subjects below this prefix, `_INBOX` by default: for a login that may subscribe only to others.
    pub fn inbox_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.inbox_prefix = Some(prefix.into());
        self
    }

    /// Uses the JetStream of this domain instead of the connected server's: for example the hub's from a leaf node, or
    /// a leaf's from its hub.
    ///
    /// The login must then be allowed to publish to `$JS.<domain>.API.` instead of `$JS.API.`.
    pub fn domain(mut self, domain: impl Into<String>) -> Self {
        self.domain = Some(domain.into());
        self
    }

    pub(crate) fn config(self) -> Result<Config, Error> {
        let (address, login) = Address::parse(&self.url)?;
        let encrypted = address.encrypted();
        if (self.tls_ca.is_some() || self.tls_identity.is_some()) && !encrypted {
            return Err(Error::Config(
                "a CA or a certificate was given, but the URL asks for a connection without TLS: write tls://"
                    .to_owned(),
            ));
        }
        let login = match (self.login, login) {
            (login, None) => login,
            (None, Some(credentials)) => Some(Secret::Given(credentials)),
            (Some(_), Some(_)) => {
                return Err(Error::Config(
                    "the URL has a login, and another one was given beside it: leave one of them out".to_owned(),
                ));
            }
        };
        if let Some(Secret::Given(Credentials(Kind::Nkey(seed)))) = &login {
            user(seed)?;
        }
        if let Some(prefix) = &self.inbox_prefix
            && (prefix.is_empty() || prefix.contains(['*', '>', ' ']) || prefix.ends_with('.'))
        {
            return Err(Error::Config(format!(
                "{prefix:?} is not a valid prefix of subjects: write one like `_INBOX_billing`"
            )));
        }
        let api = match &self.domain {
            None => "$JS.API".into(),
            Some(domain) => match invalid(domain) {
                None => format!("$JS.{domain}.API").into(),
                Some(why) => {
                    return Err(Error::Config(format!(
                        "{domain:?} is not a valid name of a JetStream domain, because it {why}: give the domain in the block \
                         `jetstream` of the server's configuration"
                    )));
                }
            },
        };
        // Also if the URL does not require TLS, because the server may.
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
        f.debug_struct("Options").field("domain", &self.domain).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use nkeys::KeyPair;

    use super::*;

    fn options(url: &str) -> Options {
        Options::new(url.to_owned())
    }

    #[test]
    fn an_invalid_seed_is_refused_and_not_repeated() {
        for seed in ["s3ntinel".to_owned(), KeyPair::new_account().seed().unwrap(), String::new()] {
            let error = options("nats://h").nkey(&seed).config().unwrap_err();
            let shown = format!("{error} {error:?}");
            assert!(shown.contains(".nkey") && (seed.is_empty() || !shown.contains(&seed)), "{shown}");
        }
    }

    #[test]
    fn two_logins_are_refused() {
        let error = options("nats://u:s3ntinel@h").credentials_file("f").config().unwrap_err().to_string();
        assert!(error.contains("leave one of them out") && !error.contains("ntinel"), "{error}");
    }

    #[test]
    fn a_domain_that_can_be_none_is_refused() {
        for domain in ["", "a.b", "hub >"] {
            let error = options("nats://h").domain(domain).config().unwrap_err().to_string();
            assert!(error.contains(&format!("{domain:?}")), "{error}");
        }
    }
}
