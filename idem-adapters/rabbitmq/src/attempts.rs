//! The attempts of one connection, at each host in turn.

use idem_core::Error;
use lapin::uri::{AMQPUri, SASLMechanism};

use crate::config::Config;
use crate::credentials::{Credentials, Login};
use crate::error;

/// Connects by `connect` to the host that worked last, or else to each of the others once. Returns the connection, the index
/// of its host, which the next connection starts with, and the credentials. Calls the credentials callback, if there is one.
pub(crate) async fn connect<T, F>(
    config: &Config,
    connect: impl Fn(AMQPUri) -> F,
) -> Result<(T, usize, Credentials), Error>
where
    F: Future<Output = lapin::Result<T>>,
{
    let Config { address, login, first, .. } = config;
    let credentials = login.credentials().await.map_err(|source| {
        let what = "the callback given to .credentials(..) has failed";
        Error::broker(format!("cannot connect to RabbitMQ at {address}: {what}"), source)
    })?;
    let (hosts, begin, mut failures) = (&address.hosts, first.now(), Vec::new());
    while failures.len() < hosts.len() {
        let at = begin.wrapping_add(failures.len()) % hosts.len();
        let host = &hosts[at];
        let mut uri = config.uri.clone();
        uri.authority.userinfo = credentials.userinfo();
        uri.authority.host = host.name.clone();
        uri.authority.port = host.port;
        if matches!(login, Login::Certificate) {
            uri.query.auth_mechanism = Some(SASLMechanism::External);
        }
        let error = match connect(uri).await {
            Ok(connected) => {
                first.works(at);
                return Ok((connected, at, credentials));
            }
            Err(error) => error,
        };
        let failure = error::connecting(address.of(host), host.port, &address.vhost, login.cure(), error);
        if hosts.len() > 1 {
            tracing::warn!(error = %failure, "a host of RabbitMQ cannot be used; the next one is tried");
        }
        failures.push(failure);
    }
    if failures.len() == 1 {
        return Err(failures.remove(0));
    }
    let each: Vec<_> = failures.iter().map(ToString::to_string).collect();
    Err(Error::broker(format!("none of the hosts of RabbitMQ can be used: {address}"), each.join("; ")))
}
