//! Requests for queues.
//!
//! The server refuses a request by closing its channel. lapin logs that as an error, but here it is an ordinary answer:
//! the type of a queue is determined by refusals.

use std::io;
use std::time::Duration;

use amq_protocol::protocol::channel::{AMQPMethod as Channel, Close, CloseOk, Open};
use amq_protocol::protocol::queue::{AMQPMethod as Queue, Bind, Declare};
use amq_protocol::protocol::{AMQPClass, AMQPError, AMQPErrorKind};
use lapin::options::QueueDeclareOptions;
use lapin::types::{FieldTable, ShortString};
use tokio::time::timeout;

use super::frames::{CHANNEL, unexpected};
use super::login::{Raw, answered};
use crate::error::silent;

/// The time limit for an answer. A queue may be unavailable until a leader is elected.
const ANSWER: Duration = Duration::from_secs(60);

impl Raw {
    /// Declares a queue. After an error answered by the server, the connection can still be used.
    pub(crate) async fn declare(
        &mut self,
        queue: &str,
        options: QueueDeclareOptions,
        arguments: FieldTable,
    ) -> lapin::Result<()> {
        let QueueDeclareOptions { passive, durable, exclusive, auto_delete, .. } = options;
        let declare =
            Declare { queue: queue.into(), passive, durable, exclusive, auto_delete, nowait: false, arguments };
        match self.ask(Queue::Declare(declare)).await? {
            Queue::DeclareOk(_) => Ok(()),
            _ => Err(unexpected().into()),
        }
    }

    /// Binds a queue. After an error answered by the server, the connection can still be used.
    pub(crate) async fn bind(
        &mut self,
        queue: &str,
        exchange: ShortString,
        routing_key: ShortString,
        arguments: FieldTable,
    ) -> lapin::Result<()> {
        match self
            .ask(Queue::Bind(Bind { queue: queue.into(), exchange, routing_key, nowait: false, arguments }))
            .await?
        {
            Queue::BindOk(_) => Ok(()),
            _ => Err(unexpected().into()),
        }
    }

    /// Sends a request on a new channel and closes the channel. Not cancel safe: if it is dropped before the answer is
    /// complete, the connection must be dropped.
    async fn ask(&mut self, question: Queue) -> lapin::Result<Queue> {
        let answer = timeout(ANSWER, async {
            self.send(CHANNEL, AMQPClass::Channel(Channel::Open(Open {}))).await?;
            let AMQPClass::Channel(Channel::OpenOk(_)) = self.method().await? else { return Err(unexpected()) };
            self.send(CHANNEL, AMQPClass::Queue(question)).await?;
            let answer = match self.method().await {
                Ok(answer) => answer,
                Err(error) => {
                    if is_of_channel(&error) {
                        self.send(CHANNEL, AMQPClass::Channel(Channel::CloseOk(CloseOk {}))).await?;
                    }
                    return Err(error);
                }
            };
            let close = Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
            self.send(CHANNEL, AMQPClass::Channel(Channel::Close(close))).await?;
            let AMQPClass::Channel(Channel::CloseOk(_)) = self.method().await? else { return Err(unexpected()) };
            match answer {
                AMQPClass::Queue(answer) => Ok(answer),
                _ => Err(unexpected()),
            }
        });
        answer.await.unwrap_or_else(|_| Err(silent(ANSWER))).map_err(answered)
    }
}

/// Reports whether the server closed the channel, and not the connection.
fn is_of_channel(error: &io::Error) -> bool {
    let answer = error.get_ref().and_then(|inner| inner.downcast_ref::<AMQPError>());
    answer.is_some_and(|answer| matches!(answer.kind(), AMQPErrorKind::Soft(_)))
}
