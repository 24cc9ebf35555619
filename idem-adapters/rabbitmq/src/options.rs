//! Connection options.

use std::fmt;
use std::time::Duration;

use idem_core::{BoxError, Callback, Error};
use lapin::uri::AMQPScheme;

use crate::address::{self, Address, First, Host, Url};
use crate::config::Config;
use crate::credentials::{Credentials, Login};
use crate::tls::Tls;

/// RabbitMQ's default: <https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout>
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// The options of a connection to a server.
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
    ask: Option<Callback<Credentials>>,
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

    /// Adds nodes of the same cluster, as `host`, `host:port` or `[ipv6]:port`. The default port is that of the URL.
    /// User, virtual host and TLS settings are those of the URL. Each node's certificate must be valid for the name
    /// given here.
    ///
    /// Each connection attempt starts with the node that worked last (at first the URL's) and tries every other node
    /// before it fails. After a subscription ends or is refused, the next connection starts with the next node.
    ///
    /// ```no_run
    /// # async fn example() -> Result<(), idem_core::Error> {
    /// # use idem_rabbitmq::RabbitMq;
    /// let options = RabbitMq::options("amqp://user:password@rabbit-1/shop").hosts(["rabbit-2", "rabbit-3"]);
    /// let rabbit = options.connect().await?;
    /// # let _ = rabbit;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hosts(mut self, hosts: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.hosts.extend(hosts.into_iter().map(Into::into));
        self
    }

    /// Trusts the certificates in this PEM instead of the system's. Use this for a server with a private CA.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls.ca = Some(pem.into());
        self
    }

    /// Presents this client certificate to the server. `chain` is a PEM of the certificate and its intermediates; `key`
    /// is a PEM of its private key, which must not be encrypted.
    ///
    /// If the URL names no user (`amqps://host/vhost`) and no [`credentials`](Self::credentials) are set, the
    /// certificate is also the login: SASL EXTERNAL, which the server plugin `rabbitmq_auth_mechanism_ssl` provides.
    /// With a user, the server receives both.
    ///
    /// The certificate is read once. Start a new worker with a new certificate before it expires.
    pub fn tls_identity(mut self, chain: impl Into<Vec<u8>>, key: impl Into<Vec<u8>>) -> Self {
        self.tls.client = Some((chain.into(), key.into()));
        self
    }

    /// Calls `ask` for the user and password of each connection. Use this for credentials that change: a token that
    /// expires, or a password issued by a vault. The URL must not name a user.
    ///
    /// If the callback fails, or does not answer within 10 seconds, the connection fails. At the start of a worker that
    /// is an error; later, the callback is called again. The server closes a connection whose token has expired;
    /// everything unsettled is then redelivered on a connection with the next token. To avoid this, set the lifetime of
    /// a token with [`Credentials::valid_for`]; the connection is then given the next token in time.
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
        self.ask = Some(Callback::new(ask));
        self
    }

    /// Sets the server's `consumer_timeout`, if it differs from the default of 30 minutes. RabbitMQ takes back a
    /// delivery that stays unsettled for longer, together with all others on its channel. RabbitMQ does not report the
    /// setting, so it must be given here. A worker whose handler timeout is more than half of it logs a warning when it
    /// subscribes, because a delivery may wait for one run before its own. With a higher `.prefetch(..)` it may wait for
    /// more.
    pub fn consumer_timeout(mut self, timeout: Duration) -> Self {
        self.consumer_timeout = timeout;
        self
    }

    /// States that a policy lifts the delivery limit of all queues: `delivery-limit` of a number that is never reached,
    /// such as 1000000000, because -1 in a policy has no effect on some versions. On RabbitMQ 4.0 and later, a queue
    /// without its own limit is then accepted, and so is one whose arguments cannot be read
    /// ([`queue_unverified`](crate::RabbitMq::queue_unverified)); queues are declared without a limit. For one queue, use
    /// [`without_delivery_limit`](crate::Existing::without_delivery_limit). idem cannot see policies: if there is none,
    /// RabbitMQ drops each message at its 21st return.
    pub fn delivery_limit_by_policy(mut self) -> Self {
        self.limit_by_policy = true;
        self
    }

    /// Sets how old a message can be when it is redelivered: the time that it may wait in this queue or in earlier
    /// ones, and the time until an operator may put it back. RabbitMQ cannot report this. A worker whose store keeps
    /// claims for less refuses to start. Without this option, nothing is checked.
    pub fn replay_window(mut self, window: Duration) -> Self {
        self.replay_window = Some(window);
        self
    }

    pub(crate) fn config(self) -> Result<Config, Error> {
        let url = address::parse(&self.url)?;
        let encrypted = url.uri.scheme == AMQPScheme::AMQPS;
        if (self.tls.ca.is_some() || self.tls.client.is_some()) && !encrypted {
            return Err(Error::Config(
                "a CA or a certificate was given, but the URL asks for a connection without TLS: write amqps://"
                    .to_owned(),
            ));
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

/// Omits the URL, which contains the password, and certificates and keys.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options").field("consumer_timeout", &self.consumer_timeout).finish_non_exhaustive()
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
