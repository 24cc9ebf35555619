//! The interface to brokers, to which a relay publishes.

use crate::{BoxError, Error};

use super::StagedMessage;

/// A sink of messages: an exchange, a stream or a producer of one broker, to which a relay publishes the messages of the
/// outbox.
///
/// The relay calls `open` before its first message and `close` after its last one. In between it calls `publish` for
/// many messages at the same time, on shared references. **Order:** it never calls `publish` for a message with a key
/// while another message of that key is unanswered, so a sink that answers truthfully needs no order of its own. Messages
/// without a key may all be under way at once, and calls begin in no particular order.
///
/// A sink needs no task that reconnects: a call that finds the connection lost either opens a new one, or returns
/// [`SinkError::Broker`]. The relay then waits, with a growing delay of up to some seconds, and calls again. Calls that
/// find the connection lost at the same time should share one new connection.
///
/// ```
/// # use idem_core::{Sink, SinkError, StagedMessage};
/// # struct Client;
/// # enum Answer { Stored, TooLarge, Lost(std::io::Error) }
/// # impl Client { async fn publish(&self, _: &str, _: &str, _: &[u8]) -> Answer { Answer::Stored } async fn close(&self) {} }
/// struct Orders { client: Client }
///
/// impl Sink for Orders {
///     fn system(&self) -> &'static str { "mybroker" }
///     fn name(&self) -> &str { "orders" }
///     fn limit(&self) -> Option<usize> { Some(1 << 20) }
///     async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
///         let id = message.id().to_string();
///         match self.client.publish(message.to(), &id, message.payload()).await {
///             Answer::Stored => Ok(()),
///             Answer::TooLarge => Err(SinkError::message("the broker takes no message of this size")),
///             Answer::Lost(error) => Err(SinkError::broker(error)),
///         }
///     }
///     async fn close(&self) { self.client.close().await }
/// }
/// ```
#[diagnostic::on_unimplemented(
    message = "a relay cannot publish to `{Self}`",
    note = "a sink is an exchange of RabbitMQ, a stream of NATS JetStream, a producer of Kafka, or queues of SQS"
)]
pub trait Sink: Send + Sync + 'static {
    /// The broker's name as defined by OpenTelemetry (`rabbitmq`, `nats`, `kafka`, `aws_sqs`).
    fn system(&self) -> &'static str;

    /// The name of the exchange, the stream or the cluster, for errors and the log. It must not contain a secret.
    fn name(&self) -> &str;

    /// The size of the largest message that the broker accepts, in bytes, if it is known. A message whose payload and
    /// headers, with the context of its trace, are larger is refused when it is staged, if this relay runs in the same
    /// process, so that no later message of its key overtakes it. What the sink adds to them, such as the id and the key,
    /// is not counted there: [`publish`](Self::publish) refuses a message that is too large only with that. The limit is
    /// read once, after [`open`](Self::open): one that is learned later has no effect.
    fn limit(&self) -> Option<usize> {
        None
    }

    /// Called once, before the first message. A sink checks here what no message can change: that its exchange or stream
    /// exists, and that the login may publish.
    ///
    /// # Errors
    /// [`SinkError::Message`] ends the start of the relay, with its text, which names the fix.
    /// [`SinkError::Broker`]: the broker does not answer; the relay waits and calls again.
    fn open(&self) -> impl Future<Output = Result<(), SinkError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Publishes one message, and waits for the broker's answer.
    ///
    /// `Ok` means **confirmed**: the broker has stored the message as durably as it was asked to, in each queue or
    /// stream to which it was routed, and in at least one. The relay then deletes the message from the database, so an
    /// `Ok` for anything less loses it. A message that the broker returns or drops is not confirmed, even if it sends an
    /// ack; a message that it recognizes as a copy of one that it has stored is.
    ///
    /// A message may be published again under the same id: after an error, and after a crash of the relay.
    ///
    /// Cancel safe: if the future is dropped, it is unknown whether the message was published, and the relay publishes
    /// it again. The relay drops the future at a timeout (10 seconds by default) and when another relay has
    /// the lease of the outbox. A dropped call must not make another call fail, or confirm another message.
    ///
    /// # Errors
    /// [`SinkError::Message`] if the broker has rejected this message and would reject it again, or the sink cannot
    /// express it; [`SinkError::Broker`] in any other case. The text must not contain a secret, or the payload.
    fn publish(&self, message: &StagedMessage) -> impl Future<Output = Result<(), SinkError>> + Send;

    /// Closes the connection, after all calls of [`publish`](Self::publish) have ended or were dropped.
    fn close(&self) -> impl Future<Output = ()> + Send;
}

/// Why a message was not confirmed.
///
/// ```
/// # use idem_core::SinkError;
/// assert_eq!(SinkError::message("no queue is bound").to_string(), "the message was refused: no queue is bound");
/// assert_eq!(SinkError::broker("connection reset").to_string(), "the broker is unavailable: connection reset");
/// ```
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SinkError {
    /// The broker, or the sink, rejects this message: it is too large, unroutable, or has a value that the broker
    /// cannot carry. The failure counts as an attempt: the message is tried again later, a limited number of times,
    /// while messages of other keys pass. Then it becomes a dead letter of the outbox.
    #[error("the message was refused: {0}")]
    Message(#[source] BoxError),
    /// The broker did not answer, answered that it is unable to store anything at present, or the connection is lost. No
    /// attempt is counted, and the relay tries again until the message is confirmed.
    #[error("the broker is unavailable: {0}")]
    Broker(#[source] BoxError),
}

impl SinkError {
    /// Creates a [`SinkError::Message`].
    pub fn message(error: impl Into<BoxError>) -> Self {
        Self::Message(error.into())
    }

    /// Creates a [`SinkError::Broker`].
    pub fn broker(error: impl Into<BoxError>) -> Self {
        Self::Broker(error.into())
    }
}

/// For [`Sink::open`]: a wrong configuration ends the start of the relay, and everything else passes.
impl From<Error> for SinkError {
    fn from(error: Error) -> Self {
        match error {
            Error::Config(_) => Self::message(error),
            _ => Self::broker(error),
        }
    }
}
