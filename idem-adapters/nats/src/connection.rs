//! One connection, and the link that replaces one by the next.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, Context};
use async_nats::{Client, Event};
use bytes::Bytes;
use idem_core::{BoxError, Error};
use tokio::sync::watch;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::error;

/// From the first packet to the end of the login.
const CONNECT: Duration = Duration::from_secs(10);

/// How long an answer to an ack is waited for, a new connection included. A server that was killed and has forgotten that
/// it delivered a message does not answer at all (2.15.2), and the lane waits meanwhile.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// A connection that died without a word is noticed when a third ping would follow two that were not answered. Only where no pull waits: that has
/// heartbeats.
const PING: Duration = Duration::from_secs(10);

/// A client of async-nats and what watches it.
///
/// The client would connect again by itself, in silence. It is given up at its first loss instead: the worker has to
/// hear of it, and what stood in its queue must not be sent late.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Cancelled at the first loss, and not revoked when the client has connected again.
    pub(crate) lost: CancellationToken,
    /// The prefix of the subjects of JetStream's API.
    pub(crate) api: Arc<str>,
}

impl Connection {
    /// Connects and logs in. `purpose` is what the server's list of connections shows.
    pub(crate) async fn open(config: &Config, purpose: &str) -> Result<Self, Error> {
        let (lost, address) = (CancellationToken::new(), config.address.to_string());
        let seen = lost.clone();
        let connecting = async {
            let options = config
                .options()
                .await?
                .name(format!("idem {purpose}"))
                // No fewer: async-nats counts the tries of the first connection, too.
                .max_reconnects(config.address.servers.len())
                .ping_interval(PING)
                .event_callback(move |event| {
                    match event {
                        Event::Disconnected | Event::Closed => seen.cancel(),
                        Event::ServerError(error) => tracing::warn!(%address, %error, "NATS reports an error"),
                        _ => {}
                    }
                    ready(())
                });
            let connected = options.connect(&config.address.servers[..]).await;
            connected.map_err(|error| error::connecting(&config.address, error))
        };
        match timeout(CONNECT, connecting).await {
            Ok(client) => Ok(Self { client: client?, lost, api: Arc::clone(&config.api) }),
            Err(_) => {
                let what = format!("no answer within {} seconds", CONNECT.as_secs());
                Err(error::connecting(
                    &config.address,
                    async_nats::ConnectError::with_source(async_nats::ConnectErrorKind::TimedOut, what),
                ))
            }
        }
    }

    pub(crate) fn jetstream(&self) -> Context {
        jetstream::with_prefix(self.client.clone(), &self.api)
    }

    /// Whether the server has answered `word` on the subject of a delivery as JetStream does. Any other answer counts
    /// for nothing: without a consumer behind the subject the server itself answers, with status 503.
    async fn ask(&self, subject: &str, word: &'static str) -> Result<(), BoxError> {
        let asked = self.client.request(subject.to_owned(), Bytes::from_static(word.as_bytes()));
        let answer = tokio::select! {
            biased;
            answer = asked => answer?,
            () = self.lost.cancelled() => return Err(Lost.into()),
        };
        match answer.status {
            None if answer.payload.is_empty() => Ok(()),
            status => Err(format!(
                "the answer to {word} is not that of a consumer: status {status:?} and {} bytes",
                answer.payload.len()
            )
            .into()),
        }
    }
}

/// The connection has ended.
#[derive(Debug)]
pub(crate) struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection to NATS was lost")
    }
}

impl std::error::Error for Lost {}

/// The connection of a source, whichever it is at the time. Ackers hold this: on NATS a delivery outlives the
/// connection that brought it.
#[derive(Clone)]
pub(crate) struct Link(Arc<watch::Sender<Option<Connection>>>);

impl Link {
    pub(crate) fn new() -> Self {
        Self(Arc::new(watch::Sender::new(None)))
    }

    pub(crate) fn set(&self, connection: Option<Connection>) {
        self.0.send_replace(connection);
    }

    /// The connection, if there is one that is not lost.
    pub(crate) fn now(&self) -> Option<Connection> {
        self.0.borrow().clone().filter(|connection| !connection.lost.is_cancelled())
    }

    /// The connection, as soon as there is one.
    async fn soon(&self) -> Connection {
        let mut changes = self.0.subscribe();
        loop {
            // Looked at before the wait, so that no change between is missed.
            changes.mark_unchanged();
            if let Some(connection) = self.now() {
                return connection;
            }
            if changes.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Sends and waits for the answer of the consumer, over as many connections as it takes. Only for what may arrive
    /// twice and late. `false`: nothing was sent by a connection over which it could not be `meant` any more.
    pub(crate) async fn insist(
        &self,
        subject: &str,
        word: &'static str,
        meant: impl Fn() -> bool,
    ) -> Result<bool, BoxError> {
        let asked = async {
            loop {
                let connection = self.soon().await;
                // The subscription that made this connection has checked that the stream is the same.
                if !meant() {
                    return Ok(false);
                }
                match connection.ask(subject, word).await {
                    Err(error) if error.is::<Lost>() => {}
                    answer => return answer.map(|()| true),
                }
            }
        };
        timeout(ANSWER, asked).await.unwrap_or_else(|_| Err(silence(word)))
    }

    /// Sends on the connection that is there now, or else fails, and waits for the answer of the consumer until
    /// `limit`.
    pub(crate) async fn ask(&self, subject: &str, word: &'static str, limit: Instant) -> Result<(), BoxError> {
        let connection = self.now().ok_or(Lost)?;
        timeout_at(limit, connection.ask(subject, word)).await.unwrap_or_else(|_| Err(silence(word)))
    }

    /// Sends as soon as there is a connection, and waits for no answer. `false` as of [`insist`](Self::insist).
    pub(crate) async fn tell(
        &self,
        subject: &str,
        word: &'static str,
        meant: impl Fn() -> bool,
    ) -> Result<bool, BoxError> {
        let connection = timeout(ANSWER, self.soon()).await.map_err(|_| Lost)?;
        if !meant() {
            return Ok(false);
        }
        connection.client.publish(subject.to_owned(), Bytes::from_static(word.as_bytes())).await?;
        Ok(true)
    }
}

fn silence(word: &str) -> BoxError {
    format!("the consumer has not answered {word}").into()
}
