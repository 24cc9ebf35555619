//! A consumer that takes one message at a time and can parse any message.

use std::pin::pin;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use amq_protocol::protocol::basic::AMQPMethod as Basic;
use amq_protocol::protocol::connection::AMQPMethod as Connection;
use amq_protocol::protocol::{AMQPClass, basic, connection};
use futures_util::{AsyncRead, AsyncReadExt, AsyncWrite, future};
use idem_core::{BoxError, Settled};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::frames::{self, Duplex};
use super::message::{Listener, Message, Said};
use crate::error::UNANSWERED;

/// The only channel of a connection, and the consumer's tag on it.
pub(crate) const CHANNEL: u16 = 1;
pub(super) const CONSUMER: &str = "idem";

/// A consumer on a separate connection that reads short strings as bytes. A separate task keeps the connection alive;
/// it ends with this value or with the connection.
pub(crate) struct Consumer {
    messages: mpsc::UnboundedReceiver<io::Result<Message>>,
    writes: mpsc::UnboundedSender<Write>,
    task: JoinSet<()>,
}

/// Frames to send, and the sender to notify once they are written.
struct Write {
    frames: Vec<u8>,
    written: oneshot::Sender<()>,
}

impl Consumer {
    /// Creates a consumer on a connection that has subscribed.
    pub(super) fn new(stream: Box<dyn Duplex>, heartbeat: Option<Duration>) -> Self {
        let (from, to) = stream.split();
        let (found, messages) = mpsc::unbounded_channel();
        let (writes, asked) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let listener = Listener { from, silence: heartbeat.map(|heartbeat| heartbeat * 2) };
            let (listening, writing) = (pin!(listen(listener, found)), pin!(write(to, asked, heartbeat)));
            // The connection ends when either ends.
            future::select(listening, writing).await;
        });
        Self { messages, writes, task }
    }

    /// Returns the next message; `None` after the consumer was cancelled, and after an error. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Message>> {
        self.messages.recv().await
    }

    /// Same as [`next`](Self::next).
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Message>>> {
        self.messages.poll_recv(context)
    }

    /// Returns the acker for the message with this tag. With `last`, settling cancels the consumer first, so that the
    /// server does not deliver another message in between that would only be returned.
    pub(crate) fn acker(&self, tag: u64, last: bool) -> BareAcker {
        BareAcker { writes: self.writes.clone(), tag, last }
    }

    /// Cancels the consumer. Messages already delivered are still returned, then [`next`](Self::next) returns `None`.
    pub(crate) async fn cancel(&self) -> Result<Settled, BoxError> {
        send(&self.writes, cancel()?).await
    }

    /// Closes the connection gracefully. Unsettled messages go back to the queue.
    pub(crate) async fn close(mut self) {
        let close = connection::Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
        let Ok(frame) = frames::method(0, &AMQPClass::Connection(Connection::Close(close))) else { return };
        if matches!(send(&self.writes, frame).await, Ok(Settled::Sent)) {
            while self.task.join_next().await.is_some() {}
        }
    }
}

/// Reads until the connection ends. The end is sent as an error unless it was requested.
async fn listen(mut listener: Listener<impl AsyncRead + Unpin>, found: mpsc::UnboundedSender<io::Result<Message>>) {
    let mut found = Some(found);
    loop {
        let said = match listener.said().await {
            Ok(Said::Message(message)) => Ok(message),
            Ok(Said::Cancelled) => {
                found = None;
                continue;
            }
            Ok(Said::Closed) => return,
            Err(error) => Err(error),
        };
        let ended = said.is_err();
        if let Some(found) = &found {
            let _ = found.send(said);
        }
        if ended {
            return;
        }
    }
}

/// Sends the requested frames, and heartbeats when idle.
async fn write(
    mut to: impl AsyncWrite + Unpin,
    mut asked: mpsc::UnboundedReceiver<Write>,
    heartbeat: Option<Duration>,
) -> io::Result<()> {
    loop {
        let next = match heartbeat {
            Some(heartbeat) => timeout(heartbeat / 2, asked.recv()).await,
            None => Ok(asked.recv().await),
        };
        match next {
            Ok(Some(Write { frames, written })) => {
                frames::write(&mut to, &frames).await?;
                let _ = written.send(());
            }
            Ok(None) => return Ok(()),
            Err(_) => frames::write(&mut to, &frames::heartbeat()?).await?,
        }
    }
}

async fn send(writes: &mpsc::UnboundedSender<Write>, frames: Vec<u8>) -> Result<Settled, BoxError> {
    let (written, done) = oneshot::channel();
    if writes.send(Write { frames, written }).is_err() {
        return Ok(Settled::Stale);
    }
    match done.await {
        Ok(()) => Ok(Settled::Sent),
        Err(_) => Err(UNANSWERED.into()),
    }
}

/// Settles one message, only on the connection that delivered it.
pub(crate) struct BareAcker {
    writes: mpsc::UnboundedSender<Write>,
    tag: u64,
    last: bool,
}

impl BareAcker {
    pub(crate) async fn ack(self) -> Result<Settled, BoxError> {
        let ack = basic::Ack { delivery_tag: self.tag, multiple: false };
        self.settle(Basic::Ack(ack)).await
    }

    pub(crate) async fn release(self) -> Result<Settled, BoxError> {
        let nack = basic::Nack { delivery_tag: self.tag, multiple: false, requeue: true };
        self.settle(Basic::Nack(nack)).await
    }

    /// Reports whether the connection is still open.
    pub(crate) fn is_live(&self) -> bool {
        !self.writes.is_closed()
    }

    async fn settle(self, method: Basic) -> Result<Settled, BoxError> {
        let mut frames = if self.last { cancel()? } else { Vec::new() };
        frames.append(&mut frames::method(CHANNEL, &AMQPClass::Basic(method))?);
        send(&self.writes, frames).await
    }
}

fn cancel() -> io::Result<Vec<u8>> {
    let cancel = basic::Cancel { consumer_tag: CONSUMER.into(), nowait: false };
    frames::method(CHANNEL, &AMQPClass::Basic(Basic::Cancel(cancel)))
}

impl fmt::Debug for Consumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumer").finish_non_exhaustive()
    }
}
