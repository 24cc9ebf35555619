//! How to speak to a server.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{BoxError, Error};
use lapin::uri::AMQPScheme;

use crate::address::{Address, First, Host};
use crate::config::Config;
use crate::credentials::{Ask, Credentials, Login};
use crate::tls::Tls;
use crate::url::{self, Url};

/// RabbitMQ's default: <https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout>
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// How to speak to a server, before it is tried.
///
/// ```no_run
/// # use std::time::Duration;
/// # use idem_rabbitmq::RabbitMq;
/// # async fn connect(ca: Vec<u8>) -> Result<(), idem_core::Error> {
/// let rabbit = RabbitMq::options("amqps://billing@rabbit-1/shop")
///     .hosts(["rabbit-2", "rabbit-3"])
///     .tls_ca(ca)
///     .consumer_timeout(Duration::from_secs(3600))
///     .connect()
///     .await?;
/// let orders = rabbit.queue("orders").await?;
/// # Ok(()) }
/// ```
pub struct Options {
    url: String,
    hosts: Vec<String>,
    tls: Tls,
    ask: Option<Ask>,
    consumer_timeout: Duration,
    replay_window: Option<Duration>,
    limit_by_policy: bool,
}

impl Options {
    pub(crate) fn new(url: String) -> Self {
        Self {
            url,
            hosts: Vec::new(),
            tls: Tls::default(),
            ask: None,
            consumer_timeout: CONSUMER_TIMEOUT,
            replay_window: None,
            limit_by_policy: false,
        }
    }

    /// Further nodes of the same cluster, as `host`, `host:port` or `[ipv6]:port`; without a port they have that of the URL.
    /// User, virtual host and TLS are those of the URL, and each node's certificate is for the name that is written here.
    ///
    /// Each connection begins with the node that worked last, at first with that of the URL, and tries each other one before it
    /// fails; where a subscription ends or is refused, the next connection begins with the next node.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), idem_core::Error> {
    /// # use idem_rabbitmq::RabbitMq;
    /// let rabbit = RabbitMq::options("amqp://user:password@rabbit-1/shop").hosts(["rabbit-2", "rabbit-3"]).connect().await?;
    /// # let _ = rabbit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Trusts the certificates in this PEM, and no longer those of the system: for a server with a private CA.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.ca = Some(pem.into());
        self
    }

    /// Shows this certificate to the server: a PEM of it and of those that lead to its authority, and a PEM of its key, which
    /// must not be encrypted.
    ///
    /// Where the URL names no user (`amqps://host/vhost`) and there are no [`credentials`](Self::credentials), it is the login
    /// as well: SASL EXTERNAL, which the server's plugin `rabbitmq_auth_mechanism_ssl` takes. With a user, the server gets both.
    ///
    /// It is read once: start a new worker with another certificate before it expires.
    pub fn tls_identity(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((chain.into(), key.into()));
        self
    }

    /// Asks for user and password at each connection, for those that change: a token that expires, a password that a vault
    /// hands out. The URL then names no user.
    ///
    /// An error, and no answer within 10 seconds, is an error of the connection: it ends the start of a worker, and later it is
    /// asked again. The server ends a connection whose token has expired, and all that was unsettled then comes again by a
    /// connection with the next token: say how long a token holds by [`Credentials::valid_for`], and the connection gets the
    /// next one in time.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # use idem_rabbitmq::{Credentials, RabbitMq};
    /// # async fn token() -> Result<String, std::io::Error> { Ok(String::new()) }
    /// # async fn example() -> Result<(), idem_core::Error> {
    /// let rabbit = RabbitMq::options("amqps://rabbit.example/shop")
    ///     .credentials(|| async {
    ///         Ok(Credentials::new("billing", token().await?).valid_for(Duration::from_secs(300)))
    ///     })
    ///     .connect()
    ///     .await?;
    /// # let _ = rabbit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn credentials<F, A>(mut self, ask: F) -> Self
    where
        F: Fn() -> A + Send + Sync + 'static,
        A: Future<Output = Result<Credentials, BoxError>> + Send + 'static,
    {
        self.ask = Some(Arc::new(move || Box::pin(ask())));
        self
    }

    /// The server's `consumer_timeout`, if it is not its default of 30 minutes. RabbitMQ takes back what is unsettled
    /// for longer, together with all else on that channel; it does not tell its setting, so that it is told here. A
    /// worker whose handler timeout is more than half of it is warned when it subscribes.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.consumer_timeout = timeout;
        self
    }

    /// A policy lifts the delivery limit of the queues (`delivery-limit` of -1), so that one without a limit of its own is
    /// taken from a RabbitMQ 4, and declared without one. idem cannot see policies: where there is none after all, RabbitMQ
    /// drops each message at its 21st return.
    pub fn delivery_limit_by_policy(mut self) -> Self {
        self.limit_by_policy = true;
        self
    }

    /// How old a message can be when it is delivered again: for how long one may wait in the queue, or in others before it,
    /// and be put back by an operator. RabbitMQ cannot tell, so that it is told here; a worker refuses to start where
    /// claims are kept for less. Without it nothing is checked.
    pub fn replay_window(mut self, window: Duration) -> Self {
        self.replay_window = Some(window);
        self
    }

    pub(crate) fn config(self) -> Result<Config, Error> {
        let url = url::parse(&self.url)?;
        let encrypted = url.uri.scheme == AMQPScheme::AMQPS;
        if !encrypted && let Some(what) = self.tls.given() {
            return Err(Error::Config(format!(
                "{what} was given, but the URL asks for a connection without TLS: write amqps://"
            )));
        }
        let tls = if encrypted { Some(self.tls.connector()?) } else { None };
        let Url { uri, has_user } = url;
        let login = match self.ask {
            Some(_) if has_user => {
                return Err(Error::Config(
                    "the URL of RabbitMQ names a user, and .credentials(..) was given as well: leave one of them out"
                        .to_owned(),
                ));
            }
            Some(ask) => Login::Asked(ask),
            None if self.tls.client.is_some() && !has_user => Login::Certificate,
            None => Login::Url(uri.authority.userinfo.clone()),
        };
        let others = self.hosts.iter().map(|host| Host::parse(host, uri.authority.port)).collect::<Result<_, _>>()?;
        let address = Address::new(&uri, others, login.user());
        let Self { consumer_timeout, replay_window, limit_by_policy, .. } = self;
        let first = First::default();
        Ok(Config { uri, address, login, first, tls, consumer_timeout, replay_window, limit_by_policy })
    }
}

/// Shows neither the URL, which holds the password, nor certificates and keys.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("consumer_timeout", &self.consumer_timeout)
            .field("replay_window", &self.replay_window)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    #[test]
    fn the_address_has_all_but_the_password() {
        let config = Options::new("amqps://al%40ice:s3ntinel@broker.example:5679/shop".to_owned()).config().unwrap();
        let text = config.address.to_string();
        assert_eq!(text, "amqps://broker.example:5679 (user `al@ice`, virtual host `shop`)");
        let options = Options::new("amqp://u:s3ntinel@h".to_owned()).tls_ca(SENTINEL).tls_identity(SENTINEL, SENTINEL);
        let shown = [format!("{config:?}"), format!("{:?}", config.address), format!("{options:?}")];
        assert!(shown.iter().all(|text| !text.contains(SENTINEL)), "{shown:?}");
    }

    #[test]
    fn a_user_in_the_url_and_a_callback_are_refused_together() {
        let options = Options::new("amqp://u:s3ntinel@h".to_owned());
        let error = options.credentials(|| async { Ok(Credentials::new("u", "p")) }).config().unwrap_err().to_string();
        assert!(error.contains(".credentials(..)") && !error.contains(SENTINEL), "{error}");
    }
}
