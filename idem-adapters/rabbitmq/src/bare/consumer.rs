//! A consumer that takes one message at a time, and can read each.

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

/// The one channel of a consumer, and the consumer's name on it.
pub(super) const CHANNEL: u16 = 1;
pub(super) const CONSUMER: &str = "idem";

/// A consumer with a connection of its own, which reads short strings as bytes. A task of its own keeps the connection
/// alive, and ends with this value or with the connection.
pub(crate) struct Consumer {
    messages: mpsc::UnboundedReceiver<io::Result<Message>>,
    writes: mpsc::UnboundedSender<Write>,
    task: JoinSet<()>,
}

/// Frames that are to be sent, and who waits for it.
struct Write {
    frames: Vec<u8>,
    written: oneshot::Sender<()>,
}

impl Consumer {
    /// Of a connection that has subscribed.
    pub(super) fn new(stream: Box<dyn Duplex>, heartbeat: Option<Duration>) -> Self {
        let (from, to) = stream.split();
        let (found, messages) = mpsc::unbounded_channel();
        let (writes, asked) = mpsc::unbounded_channel();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let listener = Listener { from, silence: heartbeat.map(|heartbeat| heartbeat * 2) };
            let (listening, writing) = (pin!(listen(listener, found)), pin!(write(to, asked, heartbeat)));
            // Whichever ends first ends the connection.
            future::select(listening, writing).await;
        });
        Self { messages, writes, task }
    }

    /// The next message; `None` once the consumer was cancelled, and after an error. Cancel safe.
    pub(crate) async fn next(&mut self) -> Option<io::Result<Message>> {
        self.messages.recv().await
    }

    /// As [`next`](Self::next).
    pub(crate) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Message>>> {
        self.messages.poll_recv(context)
    }

    /// Settles the message of this tag. It is the `last` one where no other is to come: the consumer is cancelled before it
    /// is settled, so that none is handed out in between, only to be returned.
    pub(crate) fn acker(&self, tag: u64, last: bool) -> BareAcker {
        BareAcker { writes: self.writes.clone(), tag, last }
    }

    /// Cancels the consumer: what it has is still handed out, then [`next`](Self::next) answers `None`.
    pub(crate) async fn cancel(&self) -> Result<Settled, BoxError> {
        send(&self.writes, cancel()?).await
    }

    /// Closes the connection in good order. Unsettled messages go back to the queue.
    pub(crate) async fn close(mut self) {
        let close = connection::Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
        let Ok(frame) = frames::method(0, &AMQPClass::Connection(Connection::Close(close))) else { return };
        if matches!(send(&self.writes, frame).await, Ok(Settled::Sent)) {
            while self.task.join_next().await.is_some() {}
        }
    }
}

/// Reads until the end of the connection, which is told unless it was asked for.
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

/// Sends what is asked for, and heartbeats where nothing is.
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
        Err(_) => Err("the connection ended while it was under way".into()),
    }
}

/// Settles one message, on the connection that brought it and on no other.
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

    /// Whether the connection is still there.
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
