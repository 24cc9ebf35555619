//! JetStream as a sink.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::jetstream::ErrorCode;
use async_nats::jetstream::publish::PublishAck;
use async_nats::jetstream::response::Response;
use async_nats::{Message, Request};
use idem_core::{Error, Sink, SinkConnection, SinkError, StagedMessage};
use tokio::time::sleep;

use crate::config::Config;
use crate::connection::{Connection, Lost};
use crate::message::{check_subject, headers, size};
use crate::streams::{self, Found};

/// How long a message may have no answer before the sink looks for its stream. A relay stops to wait later.
const SILENCE: Duration = Duration::from_secs(5);

/// How long to wait for the answer to a message. A relay stops to wait earlier.
const ANSWER: Duration = Duration::from_secs(30);

/// The streams of a JetStream, to which a relay publishes the messages of an outbox: see
/// [`Nats::jetstream`](crate::Nats::jetstream).
pub struct JetStream {
    config: Arc<Config>,
    prefix: String,
    cloud_events: Option<String>,
    publishing: SinkConnection<Connection>,
    /// `max_payload` of the server; 0 before it is known.
    limit: AtomicUsize,
}

impl JetStream {
    pub(crate) fn new(config: Arc<Config>, prefix: String) -> Self {
        let (publishing, limit) = (SinkConnection::new(Connection::is_live), AtomicUsize::new(0));
        Self { config, prefix, cloud_events: None, publishing, limit }
    }

    /// Publishes each message as a CloudEvent in binary mode: headers `ce-id`, `ce-source` and so on, as in
    /// [`StagedMessage::cloud_event`], percent-encoded, and `ce-datacontenttype`. `source` says where the events come from, for example
    /// `/shop/billing`.
    /// An empty one is an error when the relay starts.
    #[must_use]
    pub fn cloud_events(mut self, source: impl Into<String>) -> Self {
        self.cloud_events = Some(source.into());
        self
    }

    fn connect(&self) -> impl Future<Output = Result<Connection, Error>> + Send + use<> {
        let config = Arc::clone(&self.config);
        async move { Connection::open(&config, "sink").await }
    }

    /// Checks that some stream takes subjects with the prefix. A login that may not ask is trusted.
    async fn check_streams(&self, connection: &Connection) -> Result<(), SinkError> {
        let address = &self.config.address;
        // A stream is found by whole parts of a subject.
        let subjects =
            format!("{}>", self.prefix.rsplit_once('.').map(|(parts, _)| format!("{parts}.")).unwrap_or_default());
        match streams::find(connection, &subjects).await {
            Found::Nothing => {
                return Err(SinkError::message(format!(
                    "no stream on {address} has subjects of `{subjects}`: create one (nats stream add), or check the \
                     prefix given to .jetstream(..)"
                )));
            }
            Found::Unknown(error) => tracing::debug!(%address, error, "the names of streams could not be read"),
            Found::Stream(_) => streams::warn(connection, &subjects, address).await,
            Found::Forbidden => {}
        }
        Ok(())
    }

    /// Returns the error of a message to which nothing listens. While a stream has no leader, or the server has not yet
    /// started JetStream, that is no fault of the message. A login that may not ask learns of no leader.
    async fn unanswered(&self, connection: &Connection, subject: &str) -> SinkError {
        let address = &self.config.address;
        match streams::find(connection, subject).await {
            Found::Stream(stream) => SinkError::broker(format!(
                "the stream `{stream}` on {address} does not answer at present: it has no leader, or only copies another"
            )),
            Found::Unknown(error) => SinkError::broker(format!("JetStream does not answer on {address}: {error}")),
            Found::Nothing | Found::Forbidden => self.no_stream(subject),
        }
    }

    /// Ends if a subscriber hears the subject, so that the server reports nothing, and no stream does.
    async fn ignored(&self, connection: &Connection, subject: &str) -> SinkError {
        sleep(SILENCE).await;
        match streams::find(connection, subject).await {
            Found::Nothing => self.no_stream(subject),
            _ => std::future::pending().await,
        }
    }

    fn no_stream(&self, subject: &str) -> SinkError {
        SinkError::message(format!(
            "no stream on {} takes the subject `{subject}`: add it to the subjects of a stream",
            self.config.address
        ))
    }

    /// Returns the result of an answer.
    fn confirmed(&self, subject: &str, answer: &Message) -> Result<(), SinkError> {
        match serde_json::from_slice::<Response<PublishAck>>(&answer.payload) {
            // A duplicate is in the stream already.
            Ok(Response::Ok(_)) => Ok(()),
            Ok(Response::Err { error }) => {
                let text = format!("the stream of `{subject}` on {} refuses it: {error}", self.config.address);
                // The class of the code says nothing: a full account has 400 too.
                let is_refused = matches!(
                    error.error_code(),
                    ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM
                );
                Err(if is_refused { SinkError::message(text) } else { SinkError::broker(text) })
            }
            Err(_) => Err(SinkError::message(format!(
                "`{subject}` was answered on {}, but not by a stream: no subscriber may answer a stream's subjects",
                self.config.address
            ))),
        }
    }
}

impl Sink for JetStream {
    fn system(&self) -> &'static str {
        "nats"
    }

    /// The prefix of the subjects.
    fn name(&self) -> &str {
        &self.prefix
    }

    /// The server's `max_payload`, which applies to payload and headers together.
    fn limit(&self) -> Option<usize> {
        Some(self.limit.load(SeqCst)).filter(|limit| *limit > 0)
    }

    async fn open(&self) -> Result<(), SinkError> {
        if self.cloud_events.as_deref() == Some("") {
            return Err(SinkError::message("the source given to .cloud_events(..) is empty: CloudEvents need one"));
        }
        let connection = self.publishing.open(|_| self.connect()).await?;
        self.limit.store(connection.client.server_info().max_payload, SeqCst);
        self.check_streams(&connection).await
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let subject = format!("{}{}", self.prefix, message.to());
        check_subject(&subject)?;
        let headers = headers(message, &subject, self.cloud_events.as_deref())?;
        let connection = self.publishing.get(|_| self.connect()).await?;
        let limit = connection.client.server_info().max_payload;
        self.limit.store(limit, SeqCst);
        let (payload, beside) = (message.payload().len(), size(&headers));
        if payload + beside > limit {
            return Err(SinkError::message(format!(
                "it has {payload} bytes and {beside} of headers, and {} takes at most {limit}: raise max_payload on the \
                 server, or send less",
                self.config.address
            )));
        }
        let request = Request::new().headers(headers).payload(message.payload().clone()).timeout(Some(ANSWER));
        let denied = connection.denied.watch(&subject);
        let answer = tokio::select! {
            biased;
            answer = connection.client.send_request(subject.clone(), request) => answer,
            () = connection.lost.cancelled() => return Err(SinkError::broker(Lost)),
            () = denied => return Err(SinkError::message(format!(
                "the login may not publish to `{subject}` on {}: allow it",
                self.config.address
            ))),
            error = self.ignored(&connection, &subject) => return Err(error),
        };
        match answer {
            Ok(answer) => self.confirmed(&subject, &answer),
            Err(error) if error.kind() == RequestErrorKind::NoResponders => {
                Err(self.unanswered(&connection, &subject).await)
            }
            Err(error) => Err(SinkError::broker(format!("no answer from {}: {error}", self.config.address))),
        }
    }

    /// Calls that wait for an answer end with an error.
    async fn close(&self) {
        if let Some(connection) = self.publishing.take().await {
            connection.lost.cancel();
        }
    }
}

impl fmt::Debug for JetStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JetStream").field("prefix", &self.prefix).field("config", &self.config).finish_non_exhaustive()
    }
}
