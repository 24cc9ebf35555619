//! The acks of one channel, of which one can settle many deliveries.

use std::collections::BTreeSet;
use std::iter;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::future::join_all;
use idem_core::{BackgroundTasks, BoxError, Settled};
use lapin::ErrorKind;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use crate::error::UNANSWERED;

/// The maximum number of acks in a round.
const ROUND: usize = 65_536;

/// Sends the acks of one channel in rounds. Those that are requested while a round is written form the next one.
///
/// In a round, everything up to the first unsettled delivery is one ack with `multiple`; each delivery behind that has
/// an ack of its own. A round ends when all of it is written, because lapin keeps no order between acks that it has at
/// the same time: an ack with `multiple` could overtake a single one before it, whose tag the server would then not
/// know.
pub(crate) struct Acks {
    tags: Arc<Mutex<Tags>>,
    requested: mpsc::UnboundedSender<Request>,
}

/// An ack to send.
struct Request {
    tag: u64,
    acker: lapin::Acker,
    answer: oneshot::Sender<Answer>,
}

/// The result of an ack, and so of all deliveries that it settles.
type Answer = Result<Settled, Arc<str>>;

impl Acks {
    /// Starts the task that sends the acks of a new channel.
    pub(crate) fn start(tasks: &mut BackgroundTasks) -> Arc<Self> {
        let ((requested, requests), tags) = (mpsc::unbounded_channel(), Arc::default());
        tasks.spawn(send(requests, Arc::clone(&tags)));
        Arc::new(Self { tags, requested })
    }

    /// Adds a delivery. It must be called in the order of the deliveries.
    pub(crate) fn deliver(&self, tag: u64) {
        lock(&self.tags).deliver(tag);
    }

    /// Acks a delivery, and returns when the ack is written. If the future is dropped, the ack is sent all the same.
    pub(crate) async fn ack(&self, tag: u64, acker: lapin::Acker) -> Result<Settled, BoxError> {
        if acker.poisoned() {
            return Ok(Settled::Stale);
        }
        let (answer, answered) = oneshot::channel();
        if self.requested.send(Request { tag, acker, answer }).is_err() {
            return Ok(Settled::Stale);
        }
        match answered.await {
            Ok(answer) => answer.map_err(|error| error.to_string().into()),
            // The task has ended with the connection.
            Err(_) => Err(UNANSWERED.into()),
        }
    }

    /// Releases a delivery. Until that is written, it is unsettled, so that no ack with `multiple` overtakes it: the
    /// delivery would be acked. A release without an answer leaves it unsettled.
    pub(crate) async fn release(&self, tag: u64, acker: &lapin::Acker) -> Result<Settled, BoxError> {
        let released = settled(answered(nack(acker), || !acker.poisoned()).await?)?;
        if released == Settled::Sent {
            lock(&self.tags).settle([tag]);
        }
        Ok(released)
    }
}

fn lock(tags: &Mutex<Tags>) -> MutexGuard<'_, Tags> {
    tags.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends one round after another.
async fn send(mut requests: mpsc::UnboundedReceiver<Request>, tags: Arc<Mutex<Tags>>) {
    let mut together = Vec::new();
    while requests.recv_many(&mut together, ROUND).await > 0 {
        together.sort_unstable_by_key(|request| request.tag);
        let unsettled = lock(&tags).settle(together.iter().map(|request| request.tag));
        let is_before = |request: &Request| unsettled.is_none_or(|unsettled| request.tag < unsettled);
        let behind = together.split_off(together.partition_point(is_before));
        let single = behind.into_iter().map(|request| vec![request]);
        join_all(iter::once(std::mem::take(&mut together)).chain(single).map(ack)).await;
    }
}

/// Acks these deliveries by one ack. If there are several, all others before the last one are settled: with `multiple`, the
/// server acks all that it counts as unsettled before it on its channel.
async fn ack(requests: Vec<Request>) {
    let Some(Request { acker, .. }) = requests.last() else { return };
    let multiple = requests.len() > 1;
    let sent = answered(acker.ack(BasicAckOptions { multiple }), || !acker.poisoned()).await.and_then(settled);
    let answer = sent.map_err(|error| Arc::<str>::from(error.to_string()));
    for request in requests {
        // The caller may have given up.
        let _ = request.answer.send(answer.clone());
    }
}

/// The deliveries of one channel that are unsettled, by their tags, which the server counts from 1 on.
///
/// An ack with `multiple` settles everything before it on its channel. It may therefore be sent only where every
/// delivery before it has either been settled or is to be settled by this very ack.
#[derive(Debug, Default)]
struct Tags {
    unsettled: BTreeSet<u64>,
    /// The last tag that was delivered.
    last: u64,
}

impl Tags {
    /// Adds a delivery. Tags have no gaps: if one was never seen here, it counts as unsettled for as long as the
    /// channel lasts.
    fn deliver(&mut self, tag: u64) {
        let next = self.last.saturating_add(1);
        if tag > next {
            self.unsettled.insert(next);
        }
        self.unsettled.insert(tag);
        self.last = self.last.max(tag);
    }

    /// Marks deliveries as settled, or as about to be settled by the next ack. Returns the first one that is left: all
    /// before it are settled.
    fn settle(&mut self, tags: impl IntoIterator<Item = u64>) -> Option<u64> {
        for tag in tags {
            self.unsettled.remove(&tag);
        }
        self.unsettled.first().copied()
    }
}

/// Uses `basic.nack`, not `basic.reject`: since RabbitMQ 4.3 the latter counts as a failed delivery.
pub(crate) async fn nack(acker: &lapin::Acker) -> lapin::Result<bool> {
    acker.nack(BasicNackOptions { multiple: false, requeue: true }).await
}

/// How often to check a connection that has not answered.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Returns the connection's answer, or an error if the connection has ended: lapin 4.12.3 never answers a command that
/// is queued while its loop ends. `live` must not call `Acker::usable`, which is false once an ack is in progress.
async fn answered<T>(answer: impl Future<Output = T>, live: impl Fn() -> bool) -> Result<T, BoxError> {
    let mut answer = pin!(answer);
    loop {
        let was_live = live();
        match timeout(POLL_INTERVAL, &mut answer).await {
            Ok(answer) => return Ok(answer),
            Err(_) if was_live => {}
            Err(_) => return Err(UNANSWERED.into()),
        }
    }
}

fn settled(sent: lapin::Result<bool>) -> Result<Settled, BoxError> {
    match sent {
        Ok(true) => Ok(Settled::Sent),
        Ok(false) => Ok(Settled::Stale),
        // The channel was already closing when the command was processed: nothing was sent.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidChannel(_)
                    | ErrorKind::InvalidChannelState(..)
                    | ErrorKind::InvalidConnectionState(_)
            ) =>
        {
            Ok(Settled::Stale)
        }
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use futures_util::FutureExt;
    use lapin::message::Delivery;

    use super::*;

    /// Returns the acks of a channel, and the ackers of its deliveries, which have the tags from 1 on.
    fn delivered(tasks: &mut BackgroundTasks, last: u64) -> (Arc<Acks>, Vec<lapin::Acker>) {
        let acks = Acks::start(tasks);
        let acker = |tag| {
            acks.deliver(tag);
            Delivery::mock(tag, "".into(), "".into(), false, Vec::new()).acker
        };
        let ackers = (1..=last).map(acker).collect();
        (acks, ackers)
    }

    /// Acks these deliveries at the same time, and returns the tags whose own ackers were used.
    async fn used(acks: &Acks, ackers: &[lapin::Acker], tags: &[usize]) -> Vec<usize> {
        let answers = join_all(tags.iter().map(|tag| acks.ack(*tag as u64, ackers[*tag - 1].clone()))).await;
        assert!(answers.into_iter().all(|answer| answer.unwrap() == Settled::Sent));
        tags.iter().copied().filter(|tag| !ackers[*tag - 1].usable()).collect()
    }

    #[tokio::test]
    async fn acks_at_the_same_time_are_one_where_nothing_before_them_is_unsettled() {
        let mut tasks = BackgroundTasks::default();
        let (acks, ackers) = delivered(&mut tasks, 8);
        assert_eq!(used(&acks, &ackers, &[3, 1, 2]).await, [3]);
        assert_eq!(used(&acks, &ackers, &[8, 7]).await, [8, 7], "each by its own: those before them are unsettled");
        assert_eq!(used(&acks, &ackers, &[6, 4]).await, [6, 4]);
        assert_eq!(acks.release(5, &ackers[4]).await.unwrap(), Settled::Sent);
        acks.deliver(9);
        assert_eq!(lock(&acks.tags).settle([]), Some(9), "what was released is settled");
    }

    #[tokio::test]
    async fn an_ack_that_nobody_waits_for_is_sent_all_the_same() {
        let mut tasks = BackgroundTasks::default();
        let (acks, ackers) = delivered(&mut tasks, 1);
        assert!(acks.ack(1, ackers[0].clone()).now_or_never().is_none());
        drop(acks);
        tasks.ended().await;
        assert!(!ackers[0].usable());
    }

    fn tags(tags: impl IntoIterator<Item = u64>) -> Tags {
        let mut delivered = Tags::default();
        tags.into_iter().for_each(|tag| delivered.deliver(tag));
        delivered
    }

    #[test]
    fn the_first_that_is_left_is_the_lowest_whatever_was_settled_behind_it() {
        let mut tags = tags(1..=5);
        assert_eq!(tags.settle([3, 5]), Some(1));
        assert_eq!(tags.settle([1]), Some(2));
        assert_eq!(tags.settle([2]), Some(4));
        assert_eq!(tags.settle([4]), None);
        tags.deliver(6);
        assert_eq!(tags.settle([]), Some(6));
        assert_eq!(tags.settle([6]), None);
    }

    #[test]
    fn a_delivery_that_was_never_seen_is_never_settled() {
        let mut tags = tags([1, 2, 4]);
        assert_eq!(tags.settle([1, 2, 4]), Some(3));
        tags.deliver(5);
        assert_eq!(tags.settle([5]), Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn an_ack_that_a_lost_connection_never_answers_ends() {
        assert!(answered(pending::<()>(), || false).await.is_err());
        let live = AtomicBool::new(true);
        let mut waiting = pin!(answered(pending::<()>(), || live.load(Relaxed)));
        // A connection that the broker has blocked answers late.
        assert!(timeout(Duration::from_secs(600), &mut waiting).await.is_err());
        live.store(false, Relaxed);
        assert!(waiting.await.is_err());
    }

    #[tokio::test]
    async fn an_answer_counts_even_if_the_connection_ends_behind_it() {
        assert_eq!(answered(ready(1), || false).await.unwrap(), 1);
    }
}
