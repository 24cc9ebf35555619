//! The acks of one channel, of which one can settle many deliveries.

use std::iter;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::future::join_all;
use idem_core::{BackgroundTasks, BoxError, Settled};
use tokio::sync::{mpsc, oneshot};

use crate::error::UNANSWERED;
use crate::sending;
use crate::tags::Tags;

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
        let released = sending::release(acker).await;
        if matches!(released, Ok(Settled::Sent)) {
            lock(&self.tags).settle([tag]);
        }
        released
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

/// Acks these deliveries by one ack. If there are several, all others before the last one are settled.
async fn ack(requests: Vec<Request>) {
    let Some(last) = requests.last() else { return };
    let sent = sending::ack(&last.acker, requests.len() > 1).await;
    let answer = sent.map_err(|error| Arc::<str>::from(error.to_string()));
    for request in requests {
        // The caller may have given up.
        let _ = request.answer.send(answer.clone());
    }
}

#[cfg(test)]
mod tests {
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
}
