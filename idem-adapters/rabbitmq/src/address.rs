//! Server addresses.

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use idem_core::Error;
use lapin::uri::{AMQPScheme, AMQPUri};

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
