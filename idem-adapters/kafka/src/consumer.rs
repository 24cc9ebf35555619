//! The thread of one subscription.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use idem_core::{Delivery, DeliveryOrder as Order};
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::connection::{self, Witness};
use crate::delivery::delivery;
use crate::error::Loss;
use crate::lag::{self, Asked};
use crate::member::Member;
use crate::partition::TopicPartition;
use crate::plan::Plan;
use crate::shared::{Phase, Shared};
use crate::start;
use crate::subscribed::Subscribed;

/// How often finished offsets are committed. A crash repeats at most what was finished since.
const COMMIT: Duration = Duration::from_millis(200);

/// How long the thread sleeps where nothing wakes it.
const SLEEP: Duration = Duration::from_millis(100);

/// How often it is looked whether partitions have leaders.
const LOOK: Duration = Duration::from_secs(30);

/// How long an event is waited for.
const SERVED: Duration = Duration::from_millis(10);

/// How many records of a partition are received before the next one has its turn.
const TURN: usize = 64;

/// The same in bytes of payload. The record that reaches it is received still.
const TURN_BYTES: usize = 1 << 20;

/// Starts the thread of one subscription. The receiver ends with it.
///
/// A separate thread, because the callbacks of a rebalance run where the client is polled, and they have to wait. It
/// polls as long as it lives, however slow the handlers are, so that the group never misses it.
pub(crate) fn start(plan: Plan, shared: Arc<Shared>, asked: Asked) -> io::Result<oneshot::Receiver<()>> {
    let (ended, end) = oneshot::channel();
    let runtime = Handle::current();
    thread::Builder::new().name("idem-kafka".to_owned()).spawn(move || {
        let last = Last { shared: Arc::clone(&shared), _ended: ended };
        if let Err(loss) = run(plan, &shared, &asked, runtime) {
            shared.end(loss);
        }
        drop(last);
    })?;
    Ok(end)
}

/// Says that the thread has ended, however it did.
struct Last {
    shared: Arc<Shared>,
    _ended: oneshot::Sender<()>,
}

impl Drop for Last {
    fn drop(&mut self) {
        let what = "the subscription has ended".to_owned();
        self.shared.end(Loss::Broker(what, "the consumer's thread is gone: open the source again".to_owned()));
    }
}

fn run(mut plan: Plan, shared: &Arc<Shared>, asked: &Asked, runtime: Handle) -> Result<(), Loss> {
    if start::decides(&plan) {
        // By a client that is in no group yet, so that no other member waits.
        let look = connection::client(&plan.config, &plan.client(), Witness::new(&plan.config))?;
        plan.begins = start::decide(&look, &plan)?;
    }
    let (config, client, order) = (Arc::clone(&plan.config), plan.client(), plan.order);
    let mut consumer = connection::client(&config, &client, Member::new(plan, Arc::clone(shared)))?;
    let bell = Arc::clone(shared);
    consumer.set_nonempty_callback(move || bell.wake());
    let member = Arc::clone(consumer.context());
    let mut subscribed = Subscribed::begin(&member, &consumer, runtime)?;
    while !subscribed.has_begun() {
        // Other answers are repeated later, since nothing is subscribed to yet. The client tells ids in its log, which
        // is served like other events.
        drop(consumer.poll(SERVED));
        subscribed.follow(&member, &consumer)?;
    }
    let consumer = Arc::new(consumer);
    asked.set(&consumer);
    let queues = BTreeMap::new();
    let mut thread = Thread { shared, member: &member, consumer: &consumer, subscribed, order, queues };
    let ended = thread.work();
    if let Err(loss) = &ended {
        shared.end(loss.clone());
    }
    // They hold the consumer.
    drop(thread);
    // This leaves the group, here and now: what is ours is revoked in the usual way, which commits what is finished.
    lag::end(consumer);
    ended
}

struct Thread<'a> {
    shared: &'a Arc<Shared>,
    member: &'a Member,
    consumer: &'a Arc<BaseConsumer<Member>>,
    subscribed: Subscribed,
    order: Order,
    queues: BTreeMap<TopicPartition, Queue>,
}

/// The records of one partition that wait for room. The client fetches no more when it has some.
///
/// A queue for each, because that is how one partition can wait and others go on. Pausing a partition would do so too,
/// but it throws away what was fetched, and fetching it again waits for the answer to the fetch before, which the
/// broker holds back for half a second if the other partitions have nothing.
struct Queue {
    /// The assignment it was made for.
    epoch: u64,
    /// Records that arrived by the consumer's main queue before this queue existed.
    early: VecDeque<(i64, Delivery)>,
    fetched: Option<PartitionQueue<Member>>,
}

impl Thread<'_> {
    fn work(&mut self) -> Result<(), Loss> {
        let mut committed = Instant::now();
        let mut looked: Option<Instant> = None;
        loop {
            if self.shared.lock().closing {
                return Ok(());
            }
            if committed.elapsed() >= COMMIT {
                committed = Instant::now();
                self.commit();
            }
            if self.shared.lock().joined && looked.is_none_or(|at| at.elapsed() >= LOOK) {
                looked = Some(Instant::now());
                self.member.look_for_leaders(self.consumer);
            }
            self.serve()?;
            self.subscribed.follow(self.member, self.consumer)?;
            self.split();
            match self.receive()? {
                Received::More => {}
                Received::All => self.shared.sleep(SLEEP, false),
                Received::NoRoom => self.shared.sleep(SLEEP, true),
            }
        }
    }

    /// Also where nothing is new: the client does not tell that a commit has failed, as each one does in the middle of a
    /// rebalance, and it sends only what was stored and is not committed yet.
    fn commit(&self) {
        if !self.shared.is_lost() {
            self.member.store(self.consumer);
            self.member.commit(self.consumer, CommitMode::Async);
        }
    }

    /// All events that there are: rebalances, errors, the answers to commits, the log.
    fn serve(&mut self) -> Result<(), Loss> {
        let consumer = self.consumer;
        loop {
            let served = self.member.served();
            match consumer.poll(Duration::ZERO) {
                // A poll ends after each of them.
                None if served != self.member.served() => {}
                None => break,
                Some(Ok(record)) => {
                    self.split();
                    let partition = TopicPartition::new(&self.member.topic(record.topic()), record.partition());
                    let early = (record.offset(), delivery(&partition.topic, &record, self.order));
                    if let Some(queue) = self.queues.get_mut(&partition) {
                        queue.early.push_back(early);
                    }
                }
                Some(Err(error)) => self.member.judge(consumer, &error, None)?,
            }
        }
        match &self.shared.lock().phase {
            Phase::Ended(loss) => Err(loss.clone()),
            _ => Ok(()),
        }
    }

    /// Gives each partition that is newly ours a queue of its own.
    fn split(&mut self) {
        let shared = self.shared.lock();
        let ours: BTreeMap<_, _> =
            shared.assigned.partitions().map(|(partition, epoch)| (partition.clone(), epoch)).collect();
        drop(shared);
        self.queues.retain(|partition, queue| ours.get(partition) == Some(&queue.epoch));
        for (partition, epoch) in ours {
            let TopicPartition { topic, number } = partition.clone();
            self.queues.entry(partition).or_insert_with(|| {
                let mut fetched = self.consumer.split_partition_queue(&topic, number);
                if let Some(fetched) = &mut fetched {
                    let bell = Arc::clone(self.shared);
                    fetched.set_nonempty_callback(move || bell.wake());
                }
                Queue { epoch, early: VecDeque::new(), fetched }
            });
        }
    }

    /// Takes from each partition in turn what there is room for.
    fn receive(&mut self) -> Result<Received, Loss> {
        let (mut left, mut records) = (Received::All, Vec::new());
        for (partition, queue) in &mut self.queues {
            let room = self.shared.room(partition);
            let turn = room.min(TURN);
            let (mut received, mut bytes) = (Vec::new(), 0);
            while received.len() < turn && bytes < TURN_BYTES {
                if let Some(early) = queue.early.pop_front() {
                    bytes += early.1.payload().len();
                    received.push(early);
                    continue;
                }
                match queue.fetched.as_ref().and_then(|fetched| fetched.poll(Duration::ZERO)) {
                    None => break,
                    Some(Ok(record)) => {
                        let delivery = delivery(&partition.topic, &record, self.order);
                        bytes += delivery.payload().len();
                        received.push((record.offset(), delivery));
                    }
                    Some(Err(error)) => {
                        self.member.judge(self.consumer, &error, Some(partition))?;
                        break;
                    }
                }
            }
            if received.len() == turn {
                left = left.max(if turn == room { Received::NoRoom } else { Received::More });
            } else if bytes >= TURN_BYTES {
                left = Received::More;
            }
            records.push((partition.clone(), queue.epoch, received));
        }
        // All events from before this fetch have arrived by now. If one of them ends the subscription, these records are of
        // another topic.
        self.serve()?;
        for (partition, epoch, received) in records {
            self.shared.receive((&partition, epoch), received);
        }
        Ok(left)
    }
}

/// Whether records are left to receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Received {
    /// Nothing, as yet.
    All,
    /// Something, for which there is no room.
    NoRoom,
    /// Something that can be received at once.
    More,
}
