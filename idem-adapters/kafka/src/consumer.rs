//! The thread that polls.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use std::{io, thread};

use idem_core::Ordering as Order;
use rdkafka::TopicPartitionList;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode as Code};
use rdkafka::message::{BorrowedMessage, Message};
use tokio::sync::oneshot;

use crate::connection::Witness;
use crate::delivery::delivery;
use crate::error::{Loss, no_topic, setting};
use crate::group::Member;
use crate::plan::Plan;
use crate::shared::{Phase, Shared};
use crate::start::{self, Start};

/// How often finished offsets are committed. A crash repeats at most what was finished since.
const COMMIT: Duration = Duration::from_millis(200);

/// How long one poll waits, at most.
const POLL: Duration = Duration::from_millis(100);

/// How long it waits at first while a partition is paused: nothing wakes it when there is room again.
const PAUSED: Duration = Duration::from_millis(2);

/// Starts the thread of one subscription. The receiver ends with it.
///
/// A thread of its own, because the callbacks of a rebalance run where the client is polled, and they have to wait. It
/// polls as long as it lives, however slow the handlers are, so that the group never misses it.
pub(crate) fn start(plan: Plan, shared: Arc<Shared>) -> io::Result<oneshot::Receiver<()>> {
    let (ended, end) = oneshot::channel();
    thread::Builder::new().name("idem-kafka".to_owned()).spawn(move || {
        let last = Last { shared: Arc::clone(&shared), _ended: ended };
        if let Err(loss) = run(plan, &shared) {
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
        self.shared.end(Loss::Broker(what, "the consumer's thread is gone: open it anew".to_owned()));
    }
}

fn run(mut plan: Plan, shared: &Arc<Shared>) -> Result<(), Loss> {
    if plan.start == Start::Latest {
        // By a client that is in no group yet, so that no other member waits.
        let look: BaseConsumer<Witness> =
            plan.client().create_with_context(Witness::default()).map_err(|error| setting(&error))?;
        plan.new = start::is_new(&look, &plan)?;
    }
    let topic = Arc::clone(&plan.topic);
    let (client, order) = (plan.client(), plan.ordering);
    let member = Member { plan, shared: Arc::clone(shared), witness: Witness::default(), uncommitted: AtomicBool::new(false) };
    let consumer: BaseConsumer<Member> = client.create_with_context(member).map_err(|error| setting(&error))?;
    let member = consumer.context();
    consumer.subscribe(&[&topic]).map_err(|error| member.broken(&error))?;
    let mut thread = Thread { shared, consumer: &consumer, order, committed: Instant::now(), wait: PAUSED };
    let ended = thread.poll(&topic);
    if let Err(loss) = &ended {
        shared.end(loss.clone());
    }
    consumer.unsubscribe();
    // This leaves the group: what is ours is revoked by the usual way, which commits what is finished.
    drop(consumer);
    ended
}

struct Thread<'a> {
    shared: &'a Shared,
    consumer: &'a BaseConsumer<Member>,
    order: Order,
    committed: Instant,
    wait: Duration,
}

impl Thread<'_> {
    fn poll(&mut self, topic: &Arc<str>) -> Result<(), Loss> {
        loop {
            {
                let inner = self.shared.lock();
                if let Phase::Ended(loss) = &inner.phase {
                    return Err(loss.clone());
                }
                if inner.closing {
                    return Ok(());
                }
            }
            self.commit();
            let wait = self.flow(topic)?;
            match self.consumer.poll(wait) {
                None => {}
                Some(Ok(record)) => self.receive(topic, &record)?,
                Some(Err(error)) => self.judge(&error)?,
            }
        }
    }

    fn commit(&mut self) {
        if self.committed.elapsed() < COMMIT {
            return;
        }
        self.committed = Instant::now();
        let member = self.consumer.context();
        // Both: each forgets what it was asked for.
        if member.store(self.consumer) | member.uncommitted.swap(false, Ordering::Relaxed) {
            member.commit(self.consumer, CommitMode::Async);
        }
    }

    /// Pauses what is full and resumes what is not. Answers how long to wait for an event.
    fn flow(&mut self, topic: &str) -> Result<Duration, Loss> {
        let (pause, resume, paused) = {
            let mut inner = self.shared.lock();
            let all = inner.draining;
            let (pause, resume) = inner.assigned.flow(all);
            (pause, resume, inner.assigned.any_paused() && !all)
        };
        let list = |partitions: &[i32]| {
            let mut list = TopicPartitionList::new();
            for partition in partitions {
                list.add_partition(topic, *partition);
            }
            list
        };
        let member = self.consumer.context();
        if !pause.is_empty() {
            self.consumer.pause(&list(&pause)).map_err(|error| member.broken(&error))?;
        }
        if !resume.is_empty() {
            self.consumer.resume(&list(&resume)).map_err(|error| member.broken(&error))?;
        }
        let moved = !pause.is_empty() || !resume.is_empty();
        self.wait = if moved { PAUSED } else { (self.wait * 2).min(POLL / 2) };
        Ok(if paused { self.wait } else { POLL })
    }

    fn receive(&self, topic: &Arc<str>, record: &BorrowedMessage<'_>) -> Result<(), Loss> {
        let (partition, offset) = (record.partition(), record.offset());
        match delivery(topic, record, self.order) {
            Ok(delivery) => self.shared.receive(partition, offset, delivery),
            Err(_) => return Err(Loss::Refused(unreadable(topic, partition, offset))),
        }
        if self.order == Order::Key && record.key().is_none() {
            warn_of_no_key(topic, partition, offset);
        }
        Ok(())
    }

    /// What an event of the client means. What the client cures by itself is none, and what is not known is the end, so
    /// that nothing is passed over.
    fn judge(&self, error: &KafkaError) -> Result<(), Loss> {
        let member = self.consumer.context();
        let plan = &member.plan;
        if let KafkaError::MessageConsumptionFatal(_) = error {
            return Err(Loss::Broker(format!("the subscription to {} has ended", plan.place()), member.witness.said().reason));
        }
        match error.rdkafka_error_code() {
            Some(Code::AllBrokersDown) => {
                let said = member.witness.said().reason;
                let what = format!("no broker of {} can be reached: check that the server runs", plan.place());
                self.shared.lose(Loss::Broker(what, said));
                Ok(())
            }
            Some(Code::AutoOffsetReset) => Err(self.out_of_range()),
            Some(Code::UnknownTopicOrPartition | Code::UnknownTopic | Code::UnknownPartition | Code::UnknownTopicId) => {
                Err(no_topic(&plan.config, &plan.topic))
            }
            Some(code) if passes(code) => Ok(()),
            _ => {
                let what = format!("the subscription to {} has ended", plan.place());
                let said = member.witness.said().reason;
                Err(Loss::Broker(what, if said.is_empty() { error.to_string() } else { said }))
            }
        }
    }

    /// The client does not say which partition it was.
    fn out_of_range(&self) -> Loss {
        let member = self.consumer.context();
        let places = self.shared.lock().assigned.places();
        let known = places.into_iter().filter_map(|(partition, offset)| Some((partition, offset?)));
        for (partition, offset) in known {
            if let Err(loss) = start::check(self.consumer, &member.plan, partition, offset) {
                return loss;
            }
        }
        let what = format!("an offset of {} is out of range", member.plan.place());
        Loss::Broker(what, member.witness.said().reason)
    }
}

/// What librdkafka tries again by itself.
fn passes(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::RequestTimedOut
            | Code::PollExceeded
            | Code::NoOffset
            | Code::LeaderNotAvailable
            | Code::NotLeaderForPartition
            | Code::ReplicaNotAvailable
            | Code::NetworkException
            | Code::CoordinatorLoadInProgress
            | Code::CoordinatorNotAvailable
            | Code::NotCoordinator
            | Code::NotEnoughReplicas
            | Code::IllegalGeneration
            | Code::UnknownMemberId
            | Code::RebalanceInProgress
            | Code::FencedLeaderEpoch
            | Code::UnknownLeaderEpoch
            | Code::KafkaStorageError
            | Code::OffsetNotAvailable
    )
}

fn unreadable(topic: &str, partition: i32, offset: i64) -> String {
    format!(
        "the record at {topic}/{partition}/{offset} has a header whose name is not UTF-8, which rdkafka cannot read: \
         take what is in it by hand, and move the group behind it by kafka-consumer-groups.sh --reset-offsets \
         --to-offset {}",
        offset + 1
    )
}

fn warn_of_no_key(topic: &str, partition: i32, offset: i64) {
    static SEEN: AtomicU64 = AtomicU64::new(0);
    if SEEN.fetch_add(1, Ordering::Relaxed) == 0 {
        tracing::warn!(
            topic,
            partition,
            offset,
            "a record has no key, and the order is that of keys: the records without one share a lane in each partition. \
             This is said once"
        );
    }
}
