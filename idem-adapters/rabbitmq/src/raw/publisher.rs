//! A connection that publishes with confirms.
//!
//! lapin also has publisher confirms, but AMQP's `basic.return` names no delivery tag, and lapin (4.12.3) gives a returned
//! message to whichever confirm it handles next. With several messages unconfirmed, that may be the confirm of another
//! one: of 20,000 messages, 500 at a time, 2,000 of them unroutable, 9 unroutable ones looked confirmed, and a relay
//! would have deleted them. Here the id of the returned message decides.

use std::io;
use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use amq_protocol::protocol::AMQPClass;
use amq_protocol::protocol::connection::{AMQPMethod, Close};
use futures_util::io::BufReader;
use futures_util::{AsyncReadExt, AsyncWrite, future};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::confirms;
use super::frames::{self, Duplex};
use super::outstanding::{Answer, End, Unconfirmed, Waiting};

/// The time limit for a close.
const CLOSE: Duration = Duration::from_secs(5);

/// How many messages may wait to be written. Further calls keep theirs, so that a call that is dropped frees its message
/// while the server takes nothing.
const QUEUED: usize = 64;

/// How many bytes are collected before they are written, unless one message has more.
const TOGETHER: usize = 256 * 1024;

/// A message to send, or the end.
enum Write {
    Message { frames: Vec<u8>, waiting: Waiting },
    Close,
}

/// A connection with one channel in confirm mode. It ends with this value, and is never recovered.
pub(crate) struct Publisher {
    writes: mpsc::Sender<Write>,
    state: Arc<State>,
    task: JoinHandle<()>,
    /// The index of the host that it is connected to.
    pub(crate) host: usize,
    /// The size of the largest frame, with its head and end.
    pub(crate) frame_max: usize,
}

/// The state that the task shares with the calls.
#[derive(Default)]
struct State {
    unconfirmed: Unconfirmed,
    /// Why the connection has ended.
    end: OnceLock<Arc<End>>,
}

/// A message as the frames to send.
pub(crate) struct Encoded {
    pub(crate) id: String,
    pub(crate) routing_key: String,
    pub(crate) frames: Vec<u8>,
}

impl Publisher {
    /// Creates a publisher on a connection whose channel is in confirm mode.
    pub(super) fn new(stream: Box<dyn Duplex>, heartbeat: Option<Duration>, host: usize, frame_max: usize) -> Self {
        let (writes, asked) = mpsc::channel(QUEUED);
        let state = Arc::<State>::default();
        let task = tokio::spawn(run(stream, heartbeat, asked, Ending(Arc::clone(&state))));
        Self { writes, state, task, host, frame_max }
    }

    /// Reports whether the connection is open.
    pub(crate) fn is_live(&self) -> bool {
        self.state.end.get().is_none()
    }

    /// Reports whether the server has ended the channel because of a message or of the exchange. The host works.
    pub(crate) fn was_refused(&self) -> bool {
        matches!(self.state.end.get().map(|end| &**end), Some(End::Refused { .. }))
    }

    /// Sends a message and waits for its confirm. Cancel safe: the confirm of a dropped call is ignored.
    ///
    /// # Errors
    /// The connection or the channel has ended: with the server's reason for all messages that were unconfirmed, and with
    /// [`End::Lost`] for one that was not sent.
    pub(crate) async fn publish(&self, encoded: Encoded) -> Result<Answer, Arc<End>> {
        let Encoded { id, routing_key, frames } = encoded;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { id: id.into(), routing_key, returned: None, answer };
        // If the task has ended, this drops `answer`, as does a message that is in the queue at the end.
        let _ = self.writes.send(Write::Message { frames, waiting }).await;
        answered.await.unwrap_or_else(|_| Err(self.unsent()))
    }

    /// Returns the reason for a message that was not sent when the channel ended: the server did not refuse it.
    fn unsent(&self) -> Arc<End> {
        match self.state.end.get() {
            Some(end) if matches!(**end, End::Lost(_)) => Arc::clone(end),
            Some(_) => {
                Arc::new(End::Lost("the server has refused another message before this one was sent".to_owned()))
            }
            None => closed(),
        }
    }

    /// Closes the connection. Messages that are unconfirmed by then are answered with an error.
    pub(crate) async fn close(&self) {
        let closing = async {
            if self.writes.send(Write::Close).await.is_ok() {
                self.writes.closed().await;
            }
        };
        let _ = timeout(CLOSE, closing).await;
        self.task.abort();
    }
}

impl Drop for Publisher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Answers all calls when it is dropped: the task may also be aborted, or panic.
struct Ending(Arc<State>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.unconfirmed.lock().end(self.0.end.get_or_init(closed));
    }
}

fn closed() -> Arc<End> {
    Arc::new(End::Lost("the connection was closed".to_owned()))
}

/// Drives the connection until it ends.
async fn run(stream: Box<dyn Duplex>, heartbeat: Option<Duration>, mut asked: mpsc::Receiver<Write>, ending: Ending) {
    let state = &ending.0;
    let (from, to) = stream.split();
    let end = {
        let (silence, unconfirmed) = (heartbeat.map(|heartbeat| heartbeat * 2), &state.unconfirmed);
        let reading = pin!(confirms::read(BufReader::new(from), silence, unconfirmed));
        let writing = pin!(write(to, &mut asked, heartbeat, unconfirmed));
        match future::select(reading, writing).await {
            future::Either::Left((end, _)) => end,
            future::Either::Right((Ok(()), _)) => End::Lost("the connection was closed".to_owned()),
            future::Either::Right((Err(error), _)) => End::Lost(error.to_string()),
        }
    };
    // `ending` answers the calls.
    let _ = state.end.set(Arc::new(end));
}

/// Sends what is asked for, and heartbeats when idle. The order of writing is that of the delivery tags.
async fn write(
    mut to: impl AsyncWrite + Unpin,
    asked: &mut mpsc::Receiver<Write>,
    heartbeat: Option<Duration>,
    unconfirmed: &Unconfirmed,
) -> io::Result<()> {
    loop {
        let received = match heartbeat {
            Some(heartbeat) => timeout(heartbeat / 2, asked.recv()).await,
            None => Ok(asked.recv().await),
        };
        let mut bytes = Vec::new();
        match received {
            Ok(Some(next)) => append(&mut bytes, next, unconfirmed)?,
            Ok(None) => return Ok(()),
            Err(_) => bytes = frames::heartbeat()?,
        }
        while bytes.len() < TOGETHER
            && let Ok(next) = asked.try_recv()
        {
            append(&mut bytes, next, unconfirmed)?;
        }
        frames::write(&mut to, &bytes).await?;
    }
}

fn append(bytes: &mut Vec<u8>, write: Write, unconfirmed: &Unconfirmed) -> io::Result<()> {
    match write {
        // A call that was dropped before its message was sent.
        Write::Message { waiting, .. } if waiting.answer.is_closed() => {}
        Write::Message { mut frames, waiting } => {
            unconfirmed.lock().push(waiting);
            bytes.append(&mut frames);
        }
        Write::Close => {
            let close = Close { reply_code: 200, reply_text: "done".into(), class_id: 0, method_id: 0 };
            bytes.append(&mut frames::method(0, &AMQPClass::Connection(AMQPMethod::Close(close)))?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use amq_protocol::protocol::channel;
    use futures_util::{AsyncRead, StreamExt, TryStreamExt, stream};

    use super::*;
    use crate::raw::{CHANNEL, method};

    /// A server that takes nothing, as in a memory alarm, and sends only what it is told to.
    struct Deaf<R>(R);

    fn deaf() -> (mpsc::UnboundedSender<Vec<u8>>, Publisher) {
        let (say, mut said) = mpsc::unbounded_channel();
        let said = stream::poll_fn(move |context| said.poll_recv(context)).map(Ok::<_, io::Error>).into_async_read();
        (say, Publisher::new(Box::new(Deaf(said)), None, 0, 4096))
    }

    impl<R: AsyncRead + Unpin> AsyncRead for Deaf<R> {
        fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, to: &mut [u8]) -> Poll<io::Result<usize>> {
            Pin::new(&mut self.get_mut().0).poll_read(context, to)
        }
    }

    impl<R> AsyncWrite for Deaf<R> {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Pending
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }

        fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Pending
        }
    }

    fn encoded(id: usize, size: usize) -> Encoded {
        Encoded { id: id.to_string(), routing_key: "orders".to_owned(), frames: vec![0; size] }
    }

    #[tokio::test]
    async fn a_dropped_call_frees_its_message_while_the_server_takes_nothing() {
        let (_say, publisher) = deaf();
        for id in 0..1000 {
            timeout(Duration::from_millis(1), publisher.publish(encoded(id, 1))).await.unwrap_err();
        }
        let queued = publisher.writes.max_capacity() - publisher.writes.capacity();
        let kept = queued + publisher.state.unconfirmed.lock().count();
        assert!((QUEUED..2 * QUEUED).contains(&kept), "{kept}");
    }

    /// The first message fills what is written at once, so the second one is not sent yet.
    #[tokio::test]
    async fn a_message_that_was_not_sent_is_not_the_refused_one() {
        let (say, publisher) = deaf();
        let close = channel::Close { reply_code: 406, reply_text: "no".into(), class_id: 60, method_id: 40 };
        let close = method(CHANNEL, &AMQPClass::Channel(channel::AMQPMethod::Close(close))).unwrap();
        let refusing = async {
            while publisher.state.unconfirmed.lock().count() == 0 {
                tokio::task::yield_now().await;
            }
            say.send(close).unwrap();
        };
        let (sent, waits) = (publisher.publish(encoded(1, TOGETHER)), publisher.publish(encoded(2, 1)));
        let (sent, waits, ()) = tokio::join!(sent, waits, refusing);
        assert_eq!(*sent.unwrap_err(), End::Refused { code: 406, text: "no".to_owned(), unconfirmed: 1 });
        assert!(matches!(*waits.unwrap_err(), End::Lost(_)));
        assert!(publisher.was_refused() && !publisher.is_live());
    }
}
