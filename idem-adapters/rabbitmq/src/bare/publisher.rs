//! A connection that publishes with confirms.
//!
//! lapin also has publisher confirms, but AMQP's `basic.return` names no delivery tag, and lapin (4.12.3) gives a returned
//! message to whichever confirm it handles next. With several messages unconfirmed, that may be the confirm of another
//! one: of 20,000 messages, 500 at a time, 2,000 of them unroutable, 9 unroutable ones looked confirmed, and a relay
//! would have deleted them. Here the id of the returned message decides.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use futures_util::io::BufReader;
use futures_util::{AsyncReadExt, future};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::confirms::{self, End};
use super::frames::Duplex;
use super::outstanding::{Answer, Outstanding, Unconfirmed, Waiting};
use super::writes::{self, Write};

/// The time limit for a close.
const CLOSE: Duration = Duration::from_secs(5);

/// A connection with one channel in confirm mode. It ends with this value, and is never recovered.
pub(crate) struct Publisher {
    writes: mpsc::UnboundedSender<Write>,
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
        let (writes, asked) = mpsc::unbounded_channel();
        let state = Arc::<State>::default();
        let task = tokio::spawn(run(stream, heartbeat, asked, Ending(Arc::clone(&state))));
        Self { writes, state, task, host, frame_max }
    }

    /// Reports whether the connection is open.
    pub(crate) fn is_live(&self) -> bool {
        !self.writes.is_closed()
    }

    /// Sends a message and waits for its confirm. Cancel safe: the confirm of a dropped call is ignored.
    ///
    /// # Errors
    /// The connection or the channel has ended, with the same reason for all messages that were unconfirmed.
    pub(crate) async fn publish(&self, encoded: Encoded) -> Result<Answer, Arc<End>> {
        let Encoded { id, routing_key, frames } = encoded;
        let (answer, answered) = oneshot::channel();
        let waiting = Waiting { id, routing_key, returned: None, answer };
        // If the task has ended, this drops `answer`.
        let _ = self.writes.send(Write::Message { frames, waiting });
        answered.await.map_err(|_| self.end())
    }

    /// Returns why the connection has ended.
    fn end(&self) -> Arc<End> {
        let closed = || Arc::new(End::Lost("the connection was closed".to_owned()));
        self.state.end.get().cloned().unwrap_or_else(closed)
    }

    /// Closes the connection. Messages that are unconfirmed by then are answered with an error.
    pub(crate) async fn close(&self) {
        if self.writes.send(Write::Close).is_ok() {
            let _ = timeout(CLOSE, self.writes.closed()).await;
        }
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
        *self.0.unconfirmed.lock() = Outstanding::default();
    }
}

/// Drives the connection until it ends.
async fn run(
    stream: Box<dyn Duplex>,
    heartbeat: Option<Duration>,
    mut asked: mpsc::UnboundedReceiver<Write>,
    ending: Ending,
) {
    let state = &ending.0;
    let (from, to) = stream.split();
    let end = {
        let (silence, unconfirmed) = (heartbeat.map(|heartbeat| heartbeat * 2), &state.unconfirmed);
        let reading = pin!(confirms::read(BufReader::new(from), silence, unconfirmed));
        let writing = pin!(writes::write(to, &mut asked, heartbeat, unconfirmed));
        match future::select(reading, writing).await {
            future::Either::Left((end, _)) => end,
            future::Either::Right((Ok(()), _)) => End::Lost("the connection was closed".to_owned()),
            future::Either::Right((Err(error), _)) => End::Lost(error.to_string()),
        }
    };
    // Before the calls are answered, so that each finds the reason.
    let _ = state.end.set(Arc::new(end));
}
