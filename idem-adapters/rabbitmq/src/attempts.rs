//! The attempts of one connection, at each host in turn.

use idem_core::Error;
use lapin::uri::{AMQPUri, SASLMechanism};

use crate::address::Address;
use crate::config::Config;
use crate::credentials::{Credentials, Login};
use crate::error;

/// The hosts to try for one connection, each once, and the login.
pub(crate) struct Attempts<'a> {
    config: &'a Config,
    pub(crate) credentials: Credentials,
    first: usize,
    failures: Vec<Error>,
}

/// One host to try.
pub(crate) struct Attempt {
    /// The host's address and the login.
    pub(crate) uri: AMQPUri,
    pub(crate) host: usize,
}

impl<'a> Attempts<'a> {
    /// Calls the credentials callback, if there is one.
    pub(crate) async fn new(config: &'a Config) -> Result<Self, Error> {
        let credentials = config.login.credentials().await.map_err(|source| {
            let what = format!(
                "cannot connect to RabbitMQ at {}: the callback given to .credentials(..) has failed",
                config.address
            );
            Error::broker(what, source)
        })?;
        let first = config.first.now();
        Ok(Self { config, credentials, first, failures: Vec::new() })
    }

    /// Returns the next host, or `None` after each was tried.
    pub(crate) fn next(&self) -> Option<Attempt> {
        let hosts = &self.config.address.hosts;
        if self.failures.len() >= hosts.len() {
            return None;
        }
        let host = self.first.wrapping_add(self.failures.len()) % hosts.len();
        let mut uri = self.config.uri.clone();
        uri.authority.userinfo = self.credentials.userinfo();
        uri.authority.host = hosts[host].name.clone();
        uri.authority.port = hosts[host].port;
        if matches!(self.config.login, Login::Certificate) {
            uri.query.auth_mechanism = Some(SASLMechanism::External);
        }
        Some(Attempt { uri, host })
    }

    /// Records that this host cannot be used.
    pub(crate) fn failed(&mut self, host: usize, error: lapin::Error) {
        let Config { address, login, .. } = self.config;
        let at = &address.hosts[host];
        let failure = error::connecting(address.of(at), at.port, &address.vhost, login.cure(), error);
        if address.hosts.len() > 1 {
            tracing::warn!(error = %failure, "a host of RabbitMQ cannot be used; the next one is tried");
        }
        self.failures.push(failure);
    }

    /// Records that this host accepted a connection: the next connection starts with it.
    pub(crate) fn works(&self, host: usize) {
        self.config.first.works(host);
    }

    /// Returns the error if no host can be used.
    pub(crate) fn error(mut self) -> Error {
        match self.failures.len() {
            1 => self.failures.remove(0),
            _ => none(&self.config.address, &self.failures),
        }
    }
}

fn none(address: &Address, failures: &[Error]) -> Error {
    let each: Vec<_> = failures.iter().map(ToString::to_string).collect();
    Error::broker(format!("none of the hosts of RabbitMQ can be used: {address}"), each.join("; "))
}
