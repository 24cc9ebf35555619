//! One connection, opened within a time limit, verified if it uses TLS, and never recovered.

use std::net::Shutdown;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use std::{io, mem};

use futures_util::{Stream, StreamExt};
use idem_core::{BackgroundTasks, Error};
use lapin::tcp::{AMQPUriTcpExt, AsyncTcpStream};
use lapin::uri::{AMQPScheme, AMQPUri};
use lapin::{Connection, ConnectionProperties, Event};
use socket2::SockRef;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::attempts;
use crate::config::Config;
use crate::credentials::{Credentials, Login, Renewal};

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
    _socket: Cut,
}

/// Shuts down the socket when dropped. Dropping lapin's connection is not enough: while a request is unanswered, such
/// as an abandoned subscribe, lapin keeps the connection, and its consumer would hold messages forever.
struct Cut(Socket);

impl Drop for Cut {
    fn drop(&mut self) {
        self.0.cut();
    }
}

impl Link {
    /// Connects and logs in. `purpose` is shown in the server's list of connections.
    pub(crate) async fn open(config: &Config, purpose: &str) -> Result<Self, Error> {
        let connected = attempts::connect(config, |uri| Self::to(config, uri, purpose)).await?;
        let ((connection, socket), host, credentials) = connected;
        Ok(Self::of(config, host, connection, socket, &credentials))
    }

    async fn to(config: &Config, uri: AMQPUri, purpose: &str) -> lapin::Result<(Connection, Cut)> {
        // lapin waits for the server's answer forever, on a separate thread. The timeout and the dropped `Cut` end
        // both.
        let socket = Cut(Socket::default());
        match timeout(CONNECT, connect(config, uri, purpose, socket.0.clone())).await {
            Ok(connection) => Ok((connection?, socket)),
            Err(_) => Err(io::Error::other(format!("no answer within {} seconds", CONNECT.as_secs())).into()),
        }
    }

    fn of(config: &Config, host: usize, connection: Connection, socket: Cut, now: &Credentials) -> Self {
        let mut watch = BackgroundTasks::default();
        let (status, copy) = (connection.status().clone(), socket.0.clone());
        // The server takes everything back when the last handle to the socket is closed, and this task owns one.
        let failed = move || {
            if !status.connected() {
                copy.cut()
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

async fn connect(config: &Config, uri: AMQPUri, purpose: &str, socket: Socket) -> lapin::Result<Connection> {
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
                socket.keep(stream.get_ref())?;
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

/// A second handle to the socket that can shut it down. It can be cut before the socket exists.
#[derive(Clone, Default)]
struct Socket(Arc<Mutex<Handle>>);

#[derive(Default)]
enum Handle {
    #[default]
    Awaited,
    Open(socket2::Socket),
    Cut,
}

impl Socket {
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        let copy = SockRef::from(stream).try_clone()?;
        match &mut *self.lock() {
            Handle::Cut => Err(io::Error::from(io::ErrorKind::TimedOut)),
            handle => {
                *handle = Handle::Open(copy);
                Ok(())
            }
        }
    }

    fn cut(&self) {
        if let Handle::Open(socket) = mem::replace(&mut *self.lock(), Handle::Cut) {
            let _ = socket.shutdown(Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Handle> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
