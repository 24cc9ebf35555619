//! One connection to a server.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::Info;
use async_nats::jetstream::{self, Context};
use async_nats::{Client, Event, Request};
use bytes::Bytes;
use idem_core::{BoxError, Error};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::config::Config;
use crate::denied::Denied;
use crate::error;

/// The time limit for connecting, from the first packet to the end of the login.
const CONNECT: Duration = Duration::from_secs(10);

/// How long to wait for the response to an ack, including the time for a new connection. A server that was killed and
/// has forgotten that it delivered a message does not respond at all (2.15.2), and the worker task waits meanwhile.
pub(crate) const ANSWER: Duration = Duration::from_secs(5);

/// The ping interval. A dead connection is detected when the third ping is due and two have had no response. This
/// matters only while no pull waits, because a waiting pull has heartbeats.
const PING: Duration = Duration::from_secs(10);

/// An async-nats client, and the token that reports its loss.
///
/// The client would silently reconnect by itself. It is abandoned at its first loss instead: the worker must learn of
/// the loss, and commands in the client's queue must not be sent late.
#[derive(Clone)]
pub(crate) struct Connection {
    pub(crate) client: Client,
    /// Cancelled at the first loss. A reconnection of the client does not change that.
    pub(crate) lost: CancellationToken,
    /// The prefix of JetStream's API subjects.
    pub(crate) api: Arc<str>,
    pub(crate) denied: Denied,
}

impl Connection {
    /// Connects and logs in. The server's list of connections shows `purpose`.
    pub(crate) async fn open(config: &Config, purpose: &str) -> Result<Self, Error> {
        let (lost, address) = (CancellationToken::new(), config.address.to_string());
        let (seen, denied) = (lost.clone(), Denied::default());
        let hears = denied.clone();
        let connecting = async {
            let options = config
                .options()
                .await?
                .name(format!("idem {purpose}"))
                // Not fewer: async-nats also counts the attempts of the first connection.
                .max_reconnects(config.address.servers.len())
                .ping_interval(PING)
                .event_callback(move |event| {
                    match event {
                        Event::Disconnected | Event::Closed => seen.cancel(),
                        Event::ServerError(error) => {
                            tracing::warn!(%address, %error, "NATS reports an error");
                            hears.hear(&error);
                        }
                        _ => {}
                    }
                    ready(())
                });
            let connected = options.connect(&config.address.servers[..]).await;
            connected.map_err(|error| error::connecting(&config.address, error))
        };
        match timeout(CONNECT, connecting).await {
            Ok(client) => Ok(Self { client: client?, lost, api: Arc::clone(&config.api), denied }),
            Err(_) => {
                let what = format!("no answer within {} seconds", CONNECT.as_secs());
                Err(error::connecting(
                    &config.address,
                    async_nats::ConnectError::with_source(async_nats::ConnectErrorKind::TimedOut, what),
                ))
            }
        }
    }

    pub(crate) fn is_live(&self) -> bool {
        !self.lost.is_cancelled()
    }

    pub(crate) fn jetstream(&self) -> Context {
        jetstream::with_prefix(self.client.clone(), &self.api)
    }

    /// Asks the server for a consumer's state.
    pub(crate) async fn consumer(&self, stream: &str, consumer: &str) -> Result<Info, BoxError> {
        let stream = self.jetstream().get_stream_no_info(stream).await?;
        Ok(stream.consumer_info(consumer).await?)
    }

    /// Sends `word` to the ack subject of a delivery and waits for JetStream's response, without a limit. Any other
    /// response is an error: if no consumer listens on the subject, the server itself responds, with status 503.
    pub(crate) async fn ask(&self, subject: &str, word: &'static str) -> Result<(), BoxError> {
        let request = Request::new().payload(Bytes::from_static(word.as_bytes())).timeout(None);
        let asked = self.client.send_request(subject.to_owned(), request);
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

/// The error of a connection that has ended.
#[derive(Debug)]
pub(crate) struct Lost;

impl std::fmt::Display for Lost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection to NATS was lost")
    }
}

impl std::error::Error for Lost {}
