//! A broker in the process to which a relay publishes, and which fails as a test tells it to.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use idem_core::{Sink, SinkError, StagedMessage};
use tokio::sync::watch;

/// The answer of a [`MemorySink`] to one message.
#[derive(Debug, Clone)]
pub enum Reply {
    /// The message is published and confirmed.
    Confirm,
    /// The message is on its way for so long, and then published and confirmed. It is not if the call is given up before.
    ConfirmAfter(Duration),
    /// The message is published, and its confirm is lost.
    LoseConfirm,
    /// The message is confirmed, and published only when the sink is closed: a defect of a sink, or of a relay that deletes a
    /// message before its confirm. If the process ends before, the message is lost.
    Buffer,
    /// The message is refused.
    Refuse(String),
    /// The message is refused as soon as this is true.
    RefuseWhen(watch::Receiver<bool>),
    /// The broker does not take anything.
    Away,
    /// The broker never answers.
    Hang,
    /// The sink panics.
    Panic,
}

/// A sink in memory, for tests. Clones publish to the same place.
///
/// ```
/// # use idem_core::{BoxError, Outgoing, Sink, StagedMessage};
/// # use idem_test::{MemorySink, Reply};
/// # use uuid::Uuid;
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), BoxError> {
/// let sink = MemorySink::new();
/// sink.on_publish(|message| if message.to() == "nowhere" { Reply::Refuse("no queue".to_owned()) } else { Reply::Confirm });
/// sink.publish(&StagedMessage::new(Uuid::nil(), Outgoing::new("orders", "{}"))).await?;
/// assert!(sink.publish(&StagedMessage::new(Uuid::nil(), Outgoing::new("nowhere", "{}"))).await.is_err());
/// assert_eq!(sink.published().len(), 1);
/// # Ok(()) }
/// ```
#[derive(Clone, Default)]
pub struct MemorySink(Arc<Inner>);

#[derive(Default)]
struct Inner {
    state: Mutex<State>,
    changed: watch::Sender<()>,
}

type Script = Box<dyn FnMut(&StagedMessage) -> Reply + Send>;

#[derive(Default)]
struct State {
    published: Vec<StagedMessage>,
    /// The messages that are confirmed and not published, by numbers that are given once.
    buffered: BTreeMap<usize, StagedMessage>,
    numbers: usize,
    /// How often `publish` was called.
    calls: usize,
    under_way: BTreeSet<Vec<u8>>,
    overlaps: usize,
    closed: usize,
    limit: Option<usize>,
    script: Option<Script>,
}

impl MemorySink {
    /// Creates a sink that confirms all messages.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks this function for each message from now on.
    pub fn on_publish(&self, script: impl FnMut(&StagedMessage) -> Reply + Send + 'static) {
        self.state().script = Some(Box::new(script));
    }

    /// Sets the size of the largest message.
    pub fn set_limit(&self, limit: usize) {
        self.state().limit = Some(limit);
    }

    /// Returns the published messages in the order in which they arrived, copies included.
    pub fn published(&self) -> Vec<StagedMessage> {
        self.state().published.clone()
    }

    /// Returns how often a message was published, confirmed or not.
    pub fn calls(&self) -> usize {
        self.state().calls
    }

    /// Returns how often a message was published while another one of its key was under way.
    pub fn overlaps(&self) -> usize {
        self.state().overlaps
    }

    /// Returns how often it was closed.
    pub fn closed(&self) -> usize {
        self.state().closed
    }

    /// Waits until the condition holds, which is checked after each call. Cancel safe.
    pub async fn wait_for(&self, mut condition: impl FnMut(&Self) -> bool) {
        let mut changed = self.0.changed.subscribe();
        while !condition(self) {
            // The sender lives in `self`, so waiting cannot fail.
            let _ = changed.changed().await;
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn begin(&self, message: &StagedMessage) -> (Reply, UnderWay<'_>) {
        let mut state = self.state();
        state.calls += 1;
        let key = message.key().map(|key| key.as_bytes().to_vec());
        if let Some(key) = &key
            && !state.under_way.insert(key.clone())
        {
            state.overlaps += 1;
        }
        let reply = state.script.as_mut().map_or(Reply::Confirm, |script| script(message));
        if matches!(reply, Reply::Confirm | Reply::LoseConfirm) {
            state.published.push(message.clone());
        }
        drop(state);
        self.0.changed.send_replace(());
        (reply, UnderWay { sink: self, key })
    }
}

/// A message in the buffer, from which it vanishes with its process.
struct Buffered {
    sink: MemorySink,
    number: usize,
}

impl Buffered {
    fn new(sink: &MemorySink, message: &StagedMessage) -> Self {
        let mut state = sink.state();
        state.numbers += 1;
        let number = state.numbers;
        state.buffered.insert(number, message.clone());
        drop(state);
        Self { sink: sink.clone(), number }
    }
}

impl Drop for Buffered {
    fn drop(&mut self) {
        self.sink.state().buffered.remove(&self.number);
    }
}

/// A call that has not ended.
struct UnderWay<'a> {
    sink: &'a MemorySink,
    key: Option<Vec<u8>>,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        if let Some(key) = &self.key {
            self.sink.state().under_way.remove(key);
        }
    }
}

impl Sink for MemorySink {
    fn system(&self) -> &'static str {
        "memory"
    }

    fn name(&self) -> &str {
        "memory"
    }

    fn limit(&self) -> Option<usize> {
        self.state().limit
    }

    async fn publish(&self, message: &StagedMessage) -> Result<(), SinkError> {
        let (reply, _under_way) = self.begin(message);
        // As the confirm of a broker, the answer comes later.
        tokio::task::yield_now().await;
        match reply {
            Reply::Confirm => Ok(()),
            Reply::ConfirmAfter(time) => {
                tokio::time::sleep(time).await;
                self.state().published.push(message.clone());
                self.0.changed.send_replace(());
                tokio::task::yield_now().await;
                Ok(())
            }
            Reply::Buffer => {
                let buffered = Buffered::new(self, message);
                // Lives as long as the runtime of the process.
                tokio::spawn(async move {
                    let _buffered = buffered;
                    std::future::pending::<()>().await;
                });
                Ok(())
            }
            Reply::Refuse(why) => Err(SinkError::message(why)),
            Reply::RefuseWhen(mut when) => {
                let _ = when.wait_for(|when| *when).await;
                Err(SinkError::message("refused as the test has told"))
            }
            Reply::Away => Err(SinkError::broker("the broker is away")),
            Reply::LoseConfirm => Err(SinkError::broker("the connection was lost")),
            Reply::Hang => std::future::pending().await,
            #[allow(clippy::panic, reason = "the test asks for it")]
            Reply::Panic => panic!("the sink panics"),
        }
    }

    async fn close(&self) {
        let mut state = self.state();
        state.closed += 1;
        let buffered = std::mem::take(&mut state.buffered);
        state.published.extend(buffered.into_values());
        drop(state);
        self.0.changed.send_replace(());
    }
}

impl fmt::Debug for MemorySink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state();
        f.debug_struct("MemorySink").field("published", &state.published.len()).finish_non_exhaustive()
    }
}
