//! Topics as a source of deliveries.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{BoxError, Delivery, DeliveryOrder, Error, Lag, ReplayWindow, Source, SubscribeOptions};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::acker::KafkaAcker;
use crate::config::Config;
use crate::consumer::Panic;
use crate::lag::lag;
use crate::partition::TopicPartition;
use crate::plan::{Plan, Start, WINDOW};
use crate::protocol::GroupProtocol;
use crate::shared::Shared;
use crate::wanted::Wanted;
use crate::{connection, consumer, replay_window};

/// How long `subscribe` waits for the first assignment. Members that are slow to give up partitions may take longer.
const JOIN: Duration = Duration::from_secs(10);

/// The longest time by which a broker that does not answer can delay a shutdown. A worker waits for 5 seconds.
const CLOSE: Duration = Duration::from_secs(4);

/// One topic, consumed as a member of a group ([`Kafka::topic`](crate::Kafka::topic)), or several
/// ([`Kafka::topics`](crate::Kafka::topics)). The documentation of one topic applies to each of them.
///
/// Each [`subscribe`](Source::subscribe) leaves the group and joins it again. After an outage of all brokers, if
/// nothing else has changed, it keeps the membership instead, so that the group does not wait for the end of the
/// session.
///
/// ```no_run
/// # use idem_kafka::{GroupProtocol, Kafka, Start};
/// # async fn topic(kafka: Kafka) -> Result<(), idem_core::Error> {
/// let orders = kafka
///     .topic("orders")
///     .await?
///     .group("billing-eu")
///     .group_protocol(GroupProtocol::Consumer)
///     .start(Start::Earliest);
/// # Ok(()) }
/// ```
pub struct Topic {
    config: Arc<Config>,
    wanted: Arc<Wanted>,
    group: Option<String>,
    member: Option<String>,
    protocol: GroupProtocol,
    start: Start,
    offsets: BTreeMap<TopicPartition, i64>,
    window: usize,
    replay_window: ReplayWindow,
    /// The source has subscribed before, so that its group has a position in the topic.
    has_consumed: bool,
    subscription: Option<Subscription>,
}

/// The state of one subscription, made by `subscribe`.
struct Subscription {
    plan: Plan,
    shared: Arc<Shared>,
    /// Resolves when the thread has ended.
    ended: oneshot::Receiver<Panic>,
}

impl Subscription {
    /// Continues the panic of the thread, if it has panicked: the next subscription would meet the defect again, so it
    /// ends the worker.
    fn raise(&mut self) {
        if let Ok(panic) = self.ended.try_recv() {
            resume_unwind(panic);
        }
    }

    /// Waits until the thread has ended, and continues its panic.
    async fn end(&mut self) {
        if !self.ended.is_terminated()
            && let Ok(panic) = (&mut self.ended).await
        {
            resume_unwind(panic);
        }
    }
}

/// Ends the thread, which would otherwise stay a member of the group.
impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl Topic {
    pub(crate) fn new(config: Arc<Config>, wanted: Arc<Wanted>) -> Self {
        Self {
            config,
            wanted,
            group: None,
            member: None,
            protocol: GroupProtocol::default(),
            start: Start::default(),
            offsets: BTreeMap::new(),
            window: WINDOW,
            replay_window: ReplayWindow::Unknown,
            has_consumed: false,
            subscription: None,
        }
    }

    /// Sets the consumer group. The default is the worker's name.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Sets where the group starts in a partition in which it has not committed an offset. The default is the oldest
    /// message.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Makes the group start at this offset of this partition if it has not committed an offset there, regardless of
    /// [`start`](Self::start). Can be called for several partitions.
    ///
    /// The worker fails to start if the topic has no such partition, or the partition no such offset.
    ///
    /// ```no_run
    /// # async fn example(kafka: idem_kafka::Kafka) -> Result<(), idem_core::Error> {
    /// // Continues where a service without idem has stopped.
    /// let orders = kafka.topic("orders").await?.start_at("orders", 0, 4711).start_at("orders", 1, 4685);
    /// # Ok(()) }
    /// ```
    pub fn start_at(mut self, topic: impl Into<String>, partition: i32, offset: i64) -> Self {
        self.offsets.insert(TopicPartition { topic: topic.into().into(), number: partition }, offset);
        self
    }

    /// Sets the protocol by which the group assigns its partitions. The default is [`GroupProtocol::Classic`].
    pub fn group_protocol(mut self, protocol: GroupProtocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// Sets how many deliveries of one partition may lie between its first unfinished one and the last. The default is
    /// 256; zero is an error when the worker starts.
    ///
    /// Behind a slow message, a partition continues for at most this many deliveries. After each assignment, this many
    /// deliveries are stored in the inbox before they run, since the previous owner may have crashed on one of them.
    /// All members of a group therefore need the same window. Neither raise nor reduce it in a rolling deployment: a
    /// member with the smaller one could run a message directly on which one with the larger one has crashed. To change
    /// it, first shut down all members gracefully.
    pub fn window(mut self, deliveries: u16) -> Self {
        self.window = usize::from(deliveries);
        self
    }

    /// Sets a name for this member that is unique in the group and stays the same over a restart (Kafka's
    /// `group.instance.id`). Its partitions then wait for it until its session ends, instead of moving to other members
    /// and back.
    ///
    /// ```no_run
    /// # async fn example(kafka: idem_kafka::Kafka) -> Result<(), Box<dyn std::error::Error>> {
    /// // In a Kubernetes StatefulSet, `billing-0` keeps its name over a restart.
    /// let orders = kafka.topic("orders").await?.static_member(std::env::var("HOSTNAME")?);
    /// # Ok(()) }
    /// ```
    pub fn static_member(mut self, name: impl Into<String>) -> Self {
        self.member = Some(name.into());
        self
    }

    fn check(&self, options: &SubscribeOptions) -> Result<String, Error> {
        let refused = |text: &str| Err(Error::Config(text.to_owned()));
        let group = self.group.as_ref().unwrap_or(&options.consumer);
        if self.window == 0 {
            return refused("with a window of 0 the worker receives nothing: give `.window(..)` at least 1");
        }
        if group.is_empty() || group.contains('\0') || self.member.as_ref().is_some_and(|name| name.contains('\0')) {
            return refused(
                "the name of a consumer group must not be empty, and neither it nor a member's name may contain NUL: give others",
            );
        }
        self.protocol.check(&self.config.client)?;
        if options.order == DeliveryOrder::Queue {
            return refused(
                "Kafka keeps no order between the partitions of a topic: ask for DeliveryOrder::Partition or DeliveryOrder::Key, \
                 or use a topic of one partition with DeliveryOrder::Partition, which keeps all of it in order",
            );
        }
        Ok(group.clone())
    }

    fn ended(&self) -> Error {
        let what = format!("the subscription to topic `{}` on {} has ended", self.wanted.text, self.config.place);
        Error::broker(what, "it has no subscription: call subscribe first")
    }

    /// Continues the existing membership if possible. Returns whether it did.
    async fn go_on(&self, group: &str, options: &SubscribeOptions) -> Result<bool, Error> {
        let Some(subscription) = &self.subscription else { return Ok(false) };
        if !subscription.shared.is_lost() || !subscription.plan.serves(group, options) {
            return Ok(false);
        }
        connection::topics(&self.config.current().await?, &self.wanted).await?;
        Ok(subscription.shared.revive())
    }

    async fn joined(&self) -> Result<(), Error> {
        let Some(subscription) = &self.subscription else { return Err(self.ended()) };
        match timeout(JOIN, subscription.shared.joined()).await {
            Ok(joined) => Ok(joined?),
            Err(_) => {
                tracing::info!(topic = %self.wanted.text, "the group has not assigned partitions yet");
                Ok(())
            }
        }
    }
}

impl Source for Topic {
    type Acker = KafkaAcker;

    fn system(&self) -> &'static str {
        "kafka"
    }

    fn name(&self) -> &str {
        &self.wanted.text
    }

    /// Fewer than `max_unsettled` if several partitions share it.
    fn capacity(&self) -> Option<usize> {
        self.subscription.as_ref()?.shared.lock().assigned.full()
    }

    /// Waits until the group has assigned partitions, for at most 10 seconds.
    async fn subscribe(&mut self, options: SubscribeOptions) -> Result<(), BoxError> {
        let group = self.check(&options)?;
        if self.go_on(&group, &options).await? {
            return Ok(self.joined().await?);
        }
        self.close().await;
        let config = Arc::new(self.config.current().await?);
        let known = connection::topics(&config, &self.wanted).await?;
        let names: Vec<_> = known.keys().map(Arc::clone).collect();
        self.replay_window = replay_window::of(&config, &names).await;
        let plan = Plan {
            config,
            wanted: Arc::clone(&self.wanted),
            group,
            member: self.member.clone(),
            protocol: self.protocol,
            start: self.start,
            offsets: self.offsets.clone(),
            window: self.window,
            order: options.order,
            max_unsettled: usize::from(options.max_unsettled),
            known,
            has_history: options.has_history || self.has_consumed,
            begins: BTreeMap::new(),
        };
        plan.warn_of_small_windows(options.least_unsettled.into());
        let shared = Arc::new(Shared::new(plan.window, plan.max_unsettled, plan.order));
        let ended = consumer::start(plan.clone(), Arc::clone(&shared))?;
        self.subscription = Some(Subscription { plan, shared, ended });
        self.joined().await?;
        self.has_consumed = true;
        Ok(())
    }

    fn has_subjects(&self) -> bool {
        false
    }

    fn has_event_types(&self) -> bool {
        false
    }

    /// The `retention.ms` of the topic. A topic that is only compacted has no limit.
    fn replay_window(&self) -> ReplayWindow {
        self.replay_window
    }

    /// How far the group is behind the ends of the partitions that are assigned to this member: everything that is not
    /// committed and would not be at the next commit. Other members report their partitions, so that the sum over all
    /// workers is the group's lag. Topics without assigned partitions and partitions without a leader are left out.
    fn lag(&self) -> Option<Lag> {
        Some(lag(&self.subscription.as_ref()?.shared))
    }

    async fn next(&mut self) -> Result<(Delivery, KafkaAcker), BoxError> {
        let Some(subscription) = &mut self.subscription else { return Err(self.ended().into()) };
        let (receipt, delivery) = match subscription.shared.next().await {
            Ok(next) => next,
            Err(loss) => {
                subscription.raise();
                return Err(Error::from(loss).into());
            }
        };
        Ok((delivery, KafkaAcker::new(Arc::clone(&subscription.shared), receipt)))
    }

    /// Stays in the group until [`close`](Source::close), so that finished deliveries can be committed.
    async fn drain(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.shared.drain();
        }
    }

    /// Commits what is finished and leaves the group. Gives up after 4 seconds without an answer; the group then takes
    /// the partitions back when the session ends.
    async fn close(&mut self) {
        let Some(mut subscription) = self.subscription.take() else { return };
        subscription.shared.close();
        let _ = timeout(CLOSE, subscription.end()).await;
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic").field("name", &self.wanted.text).field("config", &self.config).finish_non_exhaustive()
    }
}
