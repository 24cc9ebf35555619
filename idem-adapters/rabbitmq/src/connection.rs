//! One connection, opened within a time limit at one host after another, verified if it uses TLS, and never recovered.

use std::io;
use std::net::Shutdown;
use std::pin::pin;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use futures_util::{Stream, StreamExt};
use idem_core::{BackgroundTasks, Error};
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream};
use lapin::uri::{AMQPScheme, AMQPUri, SASLMechanism};
use lapin::{Connection, ConnectionProperties, Event};
use socket2::SockRef;
use tokio::time::timeout;

use crate::config::Config;
use crate::credentials::{Credentials, Login, Renewal};
use crate::error::{self, silent};

/// The time limit from the first packet to the end of the login.
const CONNECT: Duration = Duration::from_secs(10);

/// The time limit for a close. If the connection does not answer by then, the heartbeat ends it.
const CLOSE: Duration = Duration::from_secs(5);

/// A lapin connection and the tasks that watch it.
///
/// Auto-recovery is off: it would silently continue with other delivery tags, and after a channel error its stream
/// stays pending forever. The worker resubscribes instead.
pub(crate) struct Link {
    pub(crate) connection: Arc<Connection>,
    /// The index of the host that it is connected to.
    pub(crate) host: usize,
    /// The tasks end when the link is dropped.
    pub(crate) watch: BackgroundTasks,
    _socket: Arc<Socket>,
}

impl Link {
    /// Connects and logs in. `purpose` is shown in the server's list of connections.
    pub(crate) async fn open(config: &Config, purpose: &str) -> Result<Self, Error> {
        let connected = to_a_host(config, |uri| Self::to(config, uri, purpose)).await?;
        let ((connection, socket), host, credentials) = connected;
        Ok(Self::of(config, host, connection, socket, &credentials))
    }

    async fn to(config: &Config, uri: AMQPUri, purpose: &str) -> lapin::Result<(Connection, Arc<Socket>)> {
        // lapin waits for the server's answer forever, on a separate thread. The timeout and the dropped socket end
        // both.
        let socket = Arc::new(Socket::default());
        match timeout(CONNECT, connect(config, uri, purpose, Arc::downgrade(&socket))).await {
            Ok(connection) => Ok((connection?, socket)),
            Err(_) => Err(silent(CONNECT).into()),
        }
    }

    fn of(config: &Config, host: usize, connection: Connection, socket: Arc<Socket>, now: &Credentials) -> Self {
        let mut watch = BackgroundTasks::default();
        let (status, copy) = (connection.status().clone(), Arc::downgrade(&socket));
        // The server takes everything back when the last handle to the socket is closed, and there is one beside lapin's.
        let failed = move || {
            if let Some(socket) = copy.upgrade().filter(|_| !status.connected()) {
                socket.cut();
            }
        };
        let address = config.address.of(&config.address.hosts[host]).to_string();
        watch.spawn(report(connection.events_listener(), address.clone(), failed));
        let connection = Arc::new(connection);
        if let (Login::Asked(callback), Some(valid_for)) = (&config.login, now.valid_for) {
            let renewal = Renewal { callback: callback.clone(), user: now.user.clone(), address };
            watch.spawn(renewal.keep(Arc::downgrade(&connection), valid_for));
        }
        Self { connection, host, watch, _socket: socket }
    }

    /// Closes the connection gracefully. The server has then received everything that was sent before.
    pub(crate) async fn close(self) {
        let _ = timeout(CLOSE, self.connection.close(200, "done".into())).await;
    }
}

async fn connect(config: &Config, uri: AMQPUri, purpose: &str, socket: Weak<Socket>) -> lapin::Result<Connection> {
    let tls = config.tls.clone();
    let properties = ConnectionProperties::default().with_connection_name(format!("idem {purpose}").into());
    let runtime = lapin::runtime::default_runtime()?;
    Connection::connector(
        uri,
        runtime,
        async move |uri: AMQPUri, runtime| {
            let plain = AMQPUri { scheme: AMQPScheme::AMQP, ..uri };
            let stream = AMQPUriTcpExt::connect_async(&plain, &runtime).await?;
            if let AsyncTcpStream::Plain(stream) = &stream {
                let copy = SockRef::from(stream.get_ref()).try_clone()?;
                // If the attempt is over by now, nothing waits for the stream.
                let socket = socket.upgrade().ok_or_else(|| io::Error::from(io::ErrorKind::TimedOut))?;
                let _ = socket.0.set(copy);
            }
            match &tls {
                Some(tls) => Ok(stream.into_rustls(tls, &plain.authority.host).await?),
                None => Ok(stream),
            }
        },
        properties,
    )
    .await
}

/// Connects by `connect` to the host that worked last, or else to each of the others once. Returns the connection, the index
/// of its host, which the next connection starts with, and the credentials. Calls the credentials callback, if there is one.
pub(crate) async fn to_a_host<T, F>(
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
        let failure = error::connecting(address.of(host), host.port, &address.vhost, login.remedy(), error);
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

/// A second handle to the socket of a connection, once it exists. Shuts the socket down when it is dropped: dropping lapin's
/// connection is not enough. While a request is unanswered, such as an abandoned subscribe, lapin keeps the connection, and
/// its consumer would hold messages forever.
#[derive(Default)]
struct Socket(OnceLock<socket2::Socket>);

impl Socket {
    fn cut(&self) {
        if let Some(socket) = self.0.get() {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.cut();
    }
}

/// Logs the events of a connection. While a connection is blocked, nothing is written to it, including acks.
async fn report(events: impl Stream<Item = Event>, address: String, failed: impl Fn()) {
    let mut events = pin!(events);
    while let Some(event) = events.next().await {
        match event {
            Event::ConnectionBlocked(reason) => {
                tracing::warn!(%address, %reason, "RabbitMQ has blocked the connection: acks wait until it is freed");
            }
            Event::ConnectionUnblocked => tracing::info!(%address, "RabbitMQ has freed the connection"),
            // From the connection or from one of its channels.
            Event::Error(_) => failed(),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_blocked_connection_is_warned_about() {
        let (text, subscriber) = idem_conformance::captured();
        let guard = tracing::subscriber::set_default(subscriber);
        let events = [Event::Connected, Event::ConnectionBlocked("low on disk".to_owned())];
        report(futures_util::stream::iter(events), "here".to_owned(), || {}).await;
        drop(guard);
        let text = text.to_string();
        assert!(text.contains("WARN") && text.contains("low on disk") && text.contains("here"), "{text}");
        assert_eq!(text.lines().count(), 1, "{text}");
    }
}
