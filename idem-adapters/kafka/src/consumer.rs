//! The consumer thread of one subscription.

use std::any::Any;
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::{io, thread};

use idem_core::Delivery;
use rdkafka::consumer::base_consumer::PartitionQueue;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::TopicPartitionListElem;
use tokio::sync::oneshot;

use crate::connection::{self, Witness};
use crate::delivery::delivery;
use crate::error::Loss;
use crate::lag;
use crate::member::Member;
use crate::partition::TopicPartition;
use crate::plan::Plan;
use crate::shared::{Phase, Shared, Waits};
use crate::start;
use crate::subscribed::Subscribed;

/// How often finished offsets are committed. A crash repeats at most the deliveries finished since the last commit.
///
/// The client may repeat a commit that it lost with a connection behind later ones. Then it knows that the group's position
/// is behind the stored offsets, and the next commit puts it right (librdkafka 2.12.1, `rd_kafka_handle_OffsetCommit`).
const COMMIT: Duration = Duration::from_millis(200);

/// How long the thread sleeps if nothing wakes it.
const SLEEP: Duration = Duration::from_millis(100);

/// How often to check whether partitions have leaders.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

/// How long to wait for an event.
const SERVED: Duration = Duration::from_millis(10);

/// How many records of a partition are received before the next partition has its turn.
const TURN: usize = 64;

/// The same limit in bytes of payload. The record that reaches it is still received.
const TURN_BYTES: usize = 1 << 20;

/// The panic of a thread.
pub(crate) type Panic = Box<dyn Any + Send>;

/// Starts the thread of one subscription. The receiver resolves when the thread has ended, and receives its panic.
///
/// The thread is separate because rebalance callbacks run where the client is polled, and they have to wait. The thread
/// polls for as long as it lives, however slow the handlers are, so that the group keeps the member.
pub(crate) fn start(plan: Plan, shared: Arc<Shared>) -> io::Result<oneshot::Receiver<Panic>> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("idem-kafka".to_owned()).spawn(move || {
        match catch_unwind(AssertUnwindSafe(|| run(plan, &shared))) {
            Ok(Ok(())) => {}
            Ok(Err(loss)) => shared.end(loss),
            // Sent first: it is looked for when the subscription has ended.
            Err(panic) => drop(ended.send(panic)),
        }
        let what = "the subscription has ended".to_owned();
        shared.end(Loss::Broker(what, "the consumer thread has ended: subscribe again".to_owned()));
    })?;
    Ok(end)
}

fn run(mut plan: Plan, shared: &Arc<Shared>) -> Result<(), Loss> {
    let _ = shared.thread.set(thread::current());
    if start::decides(&plan) {
        // With a client that is not yet in a group, so that no other member waits.
        let client = connection::client(&plan.config, &plan.client(), Witness::new(&plan.config))?;
        plan.begins = start::decide(&client, &plan)?;
    }
    let (config, client) = (Arc::clone(&plan.config), plan.client());
    let mut consumer = connection::client(&config, &client, Member::new(plan, Arc::clone(shared)))?;
    let waking = Arc::clone(shared);
    consumer.set_nonempty_callback(move || waking.wake());
    let member = Arc::clone(consumer.context());
    let mut subscribed = Subscribed::begin(&member, &consumer)?;
    while !subscribed.has_begun() {
        // Serves the log, in which the client reports topic ids. Other events may be dropped: they are repeated later,
        // since nothing is subscribed to yet.
        drop(consumer.poll(SERVED));
        subscribed.follow(&member, &consumer)?;
    }
    let consumer = Arc::new(consumer);
    let _ = shared.client.set(Arc::downgrade(&consumer));
    let (queues, changes) = (BTreeMap::new(), None);
    let mut thread = Thread { shared, member: &member, consumer: &consumer, subscribed, queues, changes };
    let ended = thread.work();
    if let Err(loss) = &ended {
        shared.end(loss.clone());
    }
    // Drops the partition queues, which hold the consumer.
    drop(thread);
    // Leaves the group on this thread: the partitions are revoked in the usual way, which commits what is finished.
    lag::end(consumer);
    ended
}

struct Thread<'a> {
    shared: &'a Arc<Shared>,
    member: &'a Member,
    consumer: &'a Arc<BaseConsumer<Member>>,
    subscribed: Subscribed,
    queues: BTreeMap<TopicPartition, Queue>,
    /// The number of changes of the assigned partitions that `queues` has seen.
    changes: Option<u64>,
}

/// The records of one partition that wait for room in the buffer. The client stops fetching while it has enough of
/// them.
///
/// Each partition has a queue, so that one partition can wait while others continue. Pausing a partition would have the
/// same effect, but it discards the fetched records. Fetching them again waits for the answer to the previous fetch,
/// which the broker holds back for half a second if the other partitions have no records.
struct Queue {
    /// The epoch of the assignment that the queue belongs to.
    epoch: u64,
    /// Records that arrived through the consumer's main queue before this queue existed.
    early: VecDeque<(i64, Delivery)>,
    /// The client's position when the queue was created, which may be that of an earlier assignment.
    before: Option<i64>,
    fetched: Option<PartitionQueue<Member>>,
}

impl Thread<'_> {
    fn work(&mut self) -> Result<(), Loss> {
        let mut committed = Instant::now();
        let mut checked: Option<Instant> = None;
        loop {
            if self.shared.lock().closing {
                return Ok(());
            }
            if committed.elapsed() >= COMMIT {
                committed = Instant::now();
                self.commit();
                self.member.retry(self.consumer);
            }
            if self.shared.lock().joined && checked.is_none_or(|at| at.elapsed() >= CHECK_INTERVAL) {
                checked = Some(Instant::now());
                self.member.check_leaders(self.consumer);
            }
            self.serve()?;
            self.subscribed.follow(self.member, self.consumer)?;
            self.split();
            // Records that arrived before the split are in the main queue. They come before those in the new queues.
            self.serve()?;
            match self.receive()? {
                Received::More => {}
                Received::All => self.shared.sleep(SLEEP, Waits::Nothing),
                Received::NoCapacity => self.shared.sleep(SLEEP, Waits::Capacity),
            }
        }
    }

    /// Commits even if nothing is new: the client does not report that a commit has failed, as every commit does during
    /// a rebalance. It sends only offsets that were stored and are not committed yet.
    fn commit(&self) {
        if !self.shared.is_lost() {
            self.pass();
            self.member.store(self.consumer);
            self.member.commit(self.consumer, CommitMode::Async);
        }
    }

    /// Passes over what the client has skipped. Everything that it has handed out before has been received by now, unless
    /// the source drains.
    fn pass(&self) {
        let positions = self.positions();
        let mut inner = self.shared.lock();
        if inner.draining {
            return;
        }
        for (partition, queue) in &self.queues {
            let next = positions.get(partition).copied();
            if let Some(next) = next.filter(|_| queue.early.is_empty() && next > queue.before) {
                inner.assigned.pass(queue.epoch, next);
            }
        }
    }

    /// The offset of the next record of each assigned partition that the client would hand out, if known.
    fn positions(&self) -> BTreeMap<TopicPartition, i64> {
        let Ok(list) = self.consumer.position() else { return BTreeMap::new() };
        let partitions = self.member.partitions(&list);
        let next = |at: &TopicPartitionListElem<'_>| at.offset().to_raw().filter(|at| *at >= 0);
        let known = partitions.into_iter().zip(list.elements());
        known.filter_map(|(partition, at)| Some((partition, next(&at)?))).collect()
    }

    /// Serves all pending events: rebalances, errors, results of commits, log lines.
    fn serve(&mut self) -> Result<(), Loss> {
        let consumer = self.consumer;
        loop {
            let events = self.member.witness.events();
            match consumer.poll(Duration::ZERO) {
                // A poll returns after each event.
                None if events != self.member.witness.events() => {}
                None => break,
                Some(Ok(record)) => {
                    self.split();
                    let partition = TopicPartition::new(&self.member.topic(record.topic()), record.partition());
                    let early = (record.offset(), delivery(&partition.topic, &record, self.member.plan.order));
                    if let Some(queue) = self.queues.get_mut(&partition) {
                        queue.early.push_back(early);
                    }
                }
                Some(Err(error)) => self.member.handle_error(consumer, &error, None)?,
            }
        }
        match &self.shared.lock().phase {
            Phase::Ended(loss) => Err(loss.clone()),
            _ => Ok(()),
        }
    }

    /// Creates a queue for each newly assigned partition.
    fn split(&mut self) {
        let shared = self.shared.lock();
        let changes = Some(shared.assigned.changes());
        if self.changes == changes {
            return;
        }
        self.changes = changes;
        let ours: BTreeMap<_, _> =
            shared.assigned.partitions().map(|(partition, epoch)| (partition.clone(), epoch)).collect();
        drop(shared);
        let positions = self.positions();
        self.queues.retain(|partition, queue| ours.get(partition) == Some(&queue.epoch));
        for (partition, epoch) in ours {
            let TopicPartition { topic, number } = partition.clone();
            let before = positions.get(&partition).copied();
            self.queues.entry(partition).or_insert_with(|| {
                let mut fetched = self.consumer.split_partition_queue(&topic, number);
                if let Some(fetched) = &mut fetched {
                    let waking = Arc::clone(self.shared);
                    fetched.set_nonempty_callback(move || waking.wake());
                }
                Queue { epoch, early: VecDeque::new(), before, fetched }
            });
        }
    }

    /// Receives from each partition in turn as many records as there is room for.
    fn receive(&mut self) -> Result<Received, Loss> {
        let (mut left, mut records) = (Received::All, Vec::new());
        let capacities = self.shared.capacities(self.queues.values().map(|queue| queue.epoch));
        for ((partition, queue), capacity) in self.queues.iter_mut().zip(capacities) {
            let turn = capacity.min(TURN);
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
                        let delivery = delivery(&partition.topic, &record, self.member.plan.order);
                        bytes += delivery.payload().len();
                        received.push((record.offset(), delivery));
                    }
                    Some(Err(error)) => {
                        self.member.handle_error(self.consumer, &error, Some(partition))?;
                        break;
                    }
                }
            }
            if received.len() == turn {
                left = left.max(if turn == capacity { Received::NoCapacity } else { Received::More });
            } else if bytes >= TURN_BYTES {
                left = Received::More;
            }
            if !received.is_empty() {
                records.push((queue.epoch, received));
            }
        }
        // All events from before this fetch have arrived by now. If one of them ends the subscription, these records
        // belong to another topic.
        self.serve()?;
        // An error of a partition that was just assigned comes through its own queue: the main one does not name it.
        self.split();
        for (epoch, received) in records {
            self.shared.receive(epoch, received);
        }
        Ok(left)
    }
}

/// Whether records are left to receive.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Received {
    /// No records for now.
    All,
    /// Records for which there is no room.
    NoCapacity,
    /// Records that can be received at once.
    More,
}
