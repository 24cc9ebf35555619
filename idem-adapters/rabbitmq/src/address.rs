//! The URL, and the addresses of servers.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use idem_core::Error;
use lapin::types::ShortString;
use lapin::uri::{AMQPScheme, AMQPUri};

/// The heartbeat in seconds, which limits how long a silently dead connection goes unnoticed. RabbitMQ's default is 60;
/// its manual recommends 5 to 20.
const HEARTBEAT: u16 = 20;

/// The parts of a URL.
pub(crate) struct Url {
    pub(crate) uri: AMQPUri,
    /// Whether it names a user. Without one, lapin uses `guest`.
    pub(crate) has_user: bool,
}

/// Parses a URL. Does not pass on the errors of lapin's parser: one of them repeats the URL, including the password.
pub(crate) fn parse(url: &str) -> Result<Url, Error> {
    let bad = |what: &str| {
        Error::Config(format!(
            "the URL of RabbitMQ {what}: write amqp://user:password@host:port/vhost, with the special characters of \
             user, password and vhost percent-encoded"
        ))
    };
    let rest = url
        .strip_prefix("amqp://")
        .or_else(|| url.strip_prefix("amqps://"))
        .ok_or_else(|| bad("does not begin with amqp:// or amqps://"))?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    // An unencoded `/`, `?` or `#` in the password ends the authority early. The rest would be parsed as a host, a port
    // and a virtual host, and would appear in errors.
    if path.contains('@') {
        return Err(bad("has an @ behind its host"));
    }
    let mut uri: AMQPUri = url.parse().map_err(|_| bad("cannot be read"))?;
    if ShortString::try_new(uri.vhost.as_str()).is_err() {
        return Err(bad("has a virtual host of more than 255 bytes"));
    }
    // lapin parses an IPv6 address as no host, and no host as localhost.
    let host = authority.rsplit('@').next().unwrap_or(authority);
    if let Some(end) = host.find(']').filter(|_| host.starts_with('[')) {
        uri.authority.host = host[1..end].to_owned();
    }
    uri.query.heartbeat = uri.query.heartbeat.or(Some(HEARTBEAT));
    Ok(Url { uri, has_user: authority.contains('@') })
}

/// The servers and the user, without the password.
#[derive(Debug)]
pub(crate) struct Address {
    scheme: AMQPScheme,
    /// The nodes of one cluster; at least one.
    pub(crate) hosts: Vec<Host>,
    /// The user as shown in errors.
    user: String,
    pub(crate) vhost: String,
}

/// The address of one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) name: String,
    pub(crate) port: u16,
}

impl Address {
    /// Builds the address from the URL's host and the others.
    pub(crate) fn new(uri: &AMQPUri, others: Vec<Host>, user: String) -> Self {
        let first = Host { name: uri.authority.host.clone(), port: uri.authority.port };
        let hosts = [first].into_iter().chain(others).collect();
        Self { scheme: uri.scheme.clone(), hosts, user, vhost: uri.vhost.clone() }
    }

    /// Returns the address of a single host.
    pub(crate) fn of(&self, host: &Host) -> Self {
        let Self { scheme, user, vhost, .. } = self;
        Self { scheme: scheme.clone(), hosts: vec![host.clone()], user: user.clone(), vhost: vhost.clone() }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { scheme, user, vhost, .. } = self;
        let hosts: Vec<_> = self.hosts.iter().map(ToString::to_string).collect();
        write!(f, "{scheme}://{} ({user}, virtual host `{vhost}`)", hosts.join(","))
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, port } = self;
        if name.contains(':') { write!(f, "[{name}]:{port}") } else { write!(f, "{name}:{port}") }
    }
}

impl Host {
    /// Parses `host`, `host:port`, `[ipv6]` or `[ipv6]:port`.
    pub(crate) fn parse(text: &str, default_port: u16) -> Result<Self, Error> {
        // The error does not repeat the text: it may be a URL with a password.
        read(text, default_port).ok_or_else(|| {
            Error::Config(
                "a further host of RabbitMQ cannot be read: write host, host:port or [ipv6]:port; user, password and \
                 virtual host are those of the URL"
                    .to_owned(),
            )
        })
    }
}

/// The host that the next connection starts with. Shared by everything made from one `Options`.
#[derive(Default)]
pub(crate) struct First(AtomicUsize);

impl First {
    pub(crate) fn now(&self) -> usize {
        self.0.load(Relaxed)
    }

    /// Starts with this host from now on, because it accepted a connection.
    pub(crate) fn works(&self, host: usize) {
        self.0.store(host, Relaxed);
    }

    /// Starts with the host after this one from now on, if this one would be first: the operation that needed the
    /// connection failed there.
    pub(crate) fn leave(&self, host: usize) {
        let _ = self.0.compare_exchange(host, host.wrapping_add(1), Relaxed, Relaxed);
    }
}

fn read(text: &str, default_port: u16) -> Option<Host> {
    let (name, port) = match text.strip_prefix('[') {
        Some(rest) => rest.split_once(']')?,
        None => text.split_at(text.find(':').unwrap_or(text.len())),
    };
    if name.is_empty() || name.contains(|c: char| c.is_whitespace() || "@/?#[]".contains(c)) {
        return None;
    }
    let port = if port.is_empty() { default_port } else { port.strip_prefix(':')?.parse().ok()? };
    Some(Host { name: name.to_owned(), port })
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
            let error = parse(url).map(|_| ()).unwrap_err();
            assert!(matches!(error, Error::Config(_)));
            for text in [error.to_string(), format!("{error:?}")] {
                assert!(!text.contains(SENTINEL) && !text.contains("ntinel"), "{url}: {text}");
                assert!(text.contains("percent-encoded"), "{url}: {text}");
            }
        }
    }

    #[test]
    fn an_ipv6_address_is_not_localhost() {
        let host = |url| parse(url).unwrap().uri.authority.host;
        assert_eq!(host("amqp://u:p@[fd00::7]:5673/%2f"), "fd00::7");
        assert_eq!(host("amqp://[::1]"), "::1");
        assert_eq!(host("amqp://10.0.0.7"), "10.0.0.7");
        assert_eq!(host("amqp://u:p%5B@rabbit/%2f"), "rabbit");
    }

    #[test]
    fn a_heartbeat_in_the_url_wins() {
        assert_eq!(parse("amqp://h").unwrap().uri.query.heartbeat, Some(HEARTBEAT));
        assert_eq!(parse("amqp://h?heartbeat=5").unwrap().uri.query.heartbeat, Some(5));
    }

    #[test]
    fn it_is_known_whether_a_user_is_named() {
        for (url, has_user) in
            [("amqp://h", false), ("amqp://u@h", true), ("amqp://u:p@h/v", true), ("amqp://h/v", false)]
        {
            assert_eq!(parse(url).unwrap().has_user, has_user, "{url}");
        }
    }

    #[test]
    fn a_virtual_host_that_is_too_long_is_refused_and_does_not_panic() {
        assert!(parse(&format!("amqp://h/{}", "v".repeat(256))).is_err());
    }

    #[test]
    fn a_host_has_a_name_and_perhaps_a_port() {
        for (text, name, port, shown) in [
            ("rabbit-2", "rabbit-2", 5672, "rabbit-2:5672"),
            ("10.0.0.7:5673", "10.0.0.7", 5673, "10.0.0.7:5673"),
            ("[fd00::7]", "fd00::7", 5672, "[fd00::7]:5672"),
            ("[fd00::7]:5673", "fd00::7", 5673, "[fd00::7]:5673"),
        ] {
            let host = Host::parse(text, 5672).unwrap();
            assert_eq!((&*host.name, host.port, &*host.to_string()), (name, port, shown));
        }
    }

    #[test]
    fn an_invalid_host_is_refused_and_not_repeated() {
        for text in [
            "",
            ":5672",
            "h:port",
            "h:70000",
            "fd00::7",
            "[fd00::7",
            "[::1]5672",
            "a b",
            "amqp://u:s3ntinel@h",
            "u:s3ntinel@h",
        ] {
            let error = Host::parse(text, 5672).unwrap_err().to_string();
            assert!(error.contains("host:port") && !error.contains("ntinel"), "{error}");
        }
    }
}
