//! Where the server is, and how it is spoken to.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::Error;
use lapin::tcp::RustlsConnector;
use lapin::types::ShortString;
use lapin::uri::{AMQPScheme, AMQPUri};

use crate::bare::Bare;
use crate::connection::{Link, connector};
use crate::limit::Limits;
use crate::queue_type::{self, Expected};
use crate::source::Queue;

/// A RabbitMQ server and virtual host, with a login that works. It keeps no connection open.
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
    pub fn options(url: impl Into<String>) -> Options {
        Options {
            url: url.into(),
            tls_ca: None,
            consumer_timeout: CONSUMER_TIMEOUT,
            replay_horizon: None,
            limit_by_policy: false,
        }
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

/// How to speak to a server, before it is tried.
pub struct Options {
    url: String,
    tls_ca: Option<Vec<u8>>,
    consumer_timeout: Duration,
    replay_horizon: Option<Duration>,
    limit_by_policy: bool,
}

impl Options {
    /// Trusts the certificates in this PEM, and no longer those of the system: for a server with a private CA.
    pub fn tls_ca(mut self, pem: impl Into<Vec<u8>>) -> Self {
        self.tls_ca = Some(pem.into());
        self
    }

    /// The server's `consumer_timeout`, if it is not its default of 30 minutes. RabbitMQ takes back what is unsettled
    /// for longer, together with all else on that channel; it does not tell its setting, so that it is told here. A
    /// worker whose deadline is more than half of it is warned when it subscribes.
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
    pub fn replay_horizon(mut self, horizon: Duration) -> Self {
        self.replay_horizon = Some(horizon);
        self
    }

    /// Connects once, to see that the server answers and that the login works.
    ///
    /// # Errors
    /// [`Error::Refused`] for a URL or a certificate that cannot be read; [`Error::Broker`] where the server is away,
    /// does not answer within 10 seconds, refuses the login or fails the verification of TLS. The texts name the cure.
    pub async fn connect(self) -> Result<RabbitMq, Error> {
        let config = self.config()?;
        Link::open(&config, "connect").await?.close().await;
        Ok(RabbitMq { config: Arc::new(config) })
    }

    pub(crate) fn config(self) -> Result<Config, Error> {
        let uri = parse(&self.url)?;
        let encrypted = uri.scheme == AMQPScheme::AMQPS;
        if self.tls_ca.is_some() && !encrypted {
            return Err(Error::Refused(
                "a CA was given for TLS, and the URL asks for a connection without it: write amqps://".to_owned(),
            ));
        }
        let tls = if encrypted { Some(connector(self.tls_ca.as_deref())?) } else { None };
        let address = Address::of(&uri);
        let Self { consumer_timeout, replay_horizon, limit_by_policy, .. } = self;
        Ok(Config { uri, address, tls, consumer_timeout, replay_horizon, limit_by_policy })
    }
}

/// Shows neither the URL, which holds the password, nor the certificate.
impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("consumer_timeout", &self.consumer_timeout)
            .field("replay_horizon", &self.replay_horizon)
            .finish_non_exhaustive()
    }
}

/// RabbitMQ's default: <https://www.rabbitmq.com/docs/consumers#acknowledgement-timeout>
const CONSUMER_TIMEOUT: Duration = Duration::from_secs(30 * 60);

/// By default RabbitMQ offers 60 seconds, after which a connection that died without a word is noticed; its manual
/// recommends 5 to 20.
const HEARTBEAT: u16 = 20;

/// How the server is spoken to.
pub(crate) struct Config {
    pub(crate) uri: AMQPUri,
    pub(crate) address: Address,
    pub(crate) tls: Option<RustlsConnector>,
    pub(crate) consumer_timeout: Duration,
    pub(crate) replay_horizon: Option<Duration>,
    pub(crate) limit_by_policy: bool,
}

impl Config {
    /// What the server does with a queue that has no delivery limit. It is asked each time, since it may be another version
    /// by now.
    pub(crate) async fn limits(&self, expected: Expected) -> Result<Limits, Error> {
        let by_policy = self.limit_by_policy;
        // Nothing is checked there.
        if expected == Expected::Unverified {
            return Ok(Limits { major: None, by_policy });
        }
        let bare = Bare::open(self).await?;
        let major = bare.major();
        bare.close().await;
        Ok(Limits { major, by_policy })
    }
}

/// `AMQPUri` shows its password.
impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("address", &format_args!("{}", self.address))
            .field("consumer_timeout", &self.consumer_timeout)
            .finish_non_exhaustive()
    }
}

/// Where the server is, without the password.
#[derive(Debug)]
pub(crate) struct Address {
    scheme: AMQPScheme,
    user: String,
    host: String,
    pub(crate) port: u16,
    pub(crate) vhost: String,
}

impl Address {
    fn of(uri: &AMQPUri) -> Self {
        Self {
            scheme: uri.scheme.clone(),
            user: uri.authority.userinfo.username.clone(),
            host: uri.authority.host.clone(),
            port: uri.authority.port,
            vhost: uri.vhost.clone(),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, user, port, vhost, .. } = self;
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        write!(f, "{scheme}://{host}:{port} (user `{user}`, virtual host `{vhost}`)")
    }
}

/// Errors of lapin's parser are not passed on: one of them repeats the URL, password included.
fn parse(url: &str) -> Result<AMQPUri, Error> {
    let bad = |what: &str| {
        Error::Refused(format!(
            "the URL of RabbitMQ {what}: write amqp://user:password@host:port/vhost, with the special characters of \
             user, password and vhost percent-encoded"
        ))
    };
    let rest = url
        .strip_prefix("amqp://")
        .or_else(|| url.strip_prefix("amqps://"))
        .ok_or_else(|| bad("does not begin with amqp:// or amqps://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // A password with a bare `/`, `?` or `#` ends the authority early. What is left of it would be taken for a host,
    // a port and a virtual host, and would be named in errors.
    if path.contains('@') {
        return Err(bad("has an @ behind its host"));
    }
    let mut uri: AMQPUri = url.parse().map_err(|_| bad("cannot be read"))?;
    if ShortString::try_new(uri.vhost.as_str()).is_err() {
        return Err(bad("has a virtual host of more than 255 bytes"));
    }
    // lapin takes an IPv6 address for no host, and no host for localhost.
    let host = authority.rsplit('@').next().unwrap_or(authority);
    if let Some(end) = host.find(']').filter(|_| host.starts_with('[')) {
        uri.authority.host = host[1..end].to_owned();
    }
    uri.query.heartbeat = uri.query.heartbeat.or(Some(HEARTBEAT));
    Ok(uri)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SENTINEL: &str = "s3ntinel";

    #[test]
    fn no_url_that_cannot_be_read_is_repeated() {
        for url in [
            "",
            "s3ntinel",
            "amqp:guest:s3ntinel@localhost",
            "http://guest:s3ntinel@localhost",
            "amqp://guest:s3/ntinel@localhost/%2f",
            "amqp://guest:s3?ntinel@localhost/%2f",
            "amqp://guest:12#s3ntinel@localhost/%2f",
            "amqp://guest:12/s3ntinel@localhost/%2f",
            "amqp://guest:12?auth_mechanism=s3ntinel@localhost",
            "amqp://guest:s3ntinel@localhost:port/%2f",
            "amqp://guest:s3ntinel@localhost/%2f?heartbeat=s3ntinel",
            "amqp://guest:s3ntinel@localhost/%2f?auth_mechanism=s3ntinel",
            "amqp://guest:s3ntinel%ff@localhost/%2f",
            "amqp://guest:s3ntinel@[::1/%2f",
        ] {
            let error = parse(url).map(|uri| Address::of(&uri).to_string()).unwrap_err();
            assert!(matches!(error, Error::Refused(_)));
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(!text.contains(SENTINEL) && !text.contains("ntinel"), "{url}: {text}");
                assert!(text.contains("percent-encoded"), "{url}: {text}");
            }
        }
    }

    #[test]
    fn the_address_has_all_but_the_password() {
        let uri = parse("amqps://al%40ice:s3ntinel@broker.example:5679/shop").unwrap();
        let config = Config {
            address: Address::of(&uri),
            uri,
            tls: None,
            consumer_timeout: CONSUMER_TIMEOUT,
            replay_horizon: None,
            limit_by_policy: false,
        };
        let text = config.address.to_string();
        assert_eq!(text, "amqps://broker.example:5679 (user `al@ice`, virtual host `shop`)");
        let options = RabbitMq::options("amqp://u:s3ntinel@h").tls_ca(SENTINEL);
        let shown = [format!("{config:?}"), format!("{:?}", config.address), format!("{options:?}")];
        assert!(shown.iter().all(|text| !text.contains(SENTINEL)), "{shown:?}");
        let public = format!("{:?}", RabbitMq { config: Arc::new(config) });
        assert!(!public.contains(SENTINEL) && public.contains("broker.example"), "{public}");
    }

    #[test]
    fn an_ipv6_address_is_not_localhost() {
        let host = |url| parse(url).unwrap().authority.host;
        assert_eq!(host("amqp://u:p@[fd00::7]:5673/%2f"), "fd00::7");
        assert_eq!(host("amqp://[::1]"), "::1");
        assert_eq!(host("amqp://10.0.0.7"), "10.0.0.7");
        assert_eq!(host("amqp://u:p%5B@rabbit/%2f"), "rabbit");
    }

    #[test]
    fn a_heartbeat_in_the_url_wins() {
        assert_eq!(parse("amqp://h").unwrap().query.heartbeat, Some(HEARTBEAT));
        assert_eq!(parse("amqp://h?heartbeat=5").unwrap().query.heartbeat, Some(5));
    }

    #[test]
    fn a_virtual_host_that_is_too_long_is_refused_and_does_not_panic() {
        assert!(parse(&format!("amqp://h/{}", "v".repeat(256))).is_err());
    }
}
