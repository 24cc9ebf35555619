//! One topic as a source of deliveries.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{BoxError, Delivery, DeliveryOrder, Error, Lag, ReplayWindow, Source, SubscribeOptions};
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::acker::KafkaAcker;
use crate::config::Config;
use crate::lag::Asked;
use crate::partition::TopicPartition;
use crate::plan::{Plan, Start};
use crate::protocol::GroupProtocol;
use crate::shared::Shared;
use crate::wanted::Wanted;
use crate::{connection, consumer, replay_window};

/// One topic, consumed as a member of a group, made by [`Kafka::topic`](crate::Kafka::topic); or several, made by
/// [`Kafka::topics`](crate::Kafka::topics). The documentation of one topic holds for each of them.
///
/// Each [`subscribe`](Source::subscribe) leaves the group and joins it again. Only when no broker could be reached and nothing
/// else had changed it goes on as the member that it was, so that the group need not wait until its session is over.
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
    /// It was open before, so that its group has a place in the topic.
    has_consumed: bool,
    subscription: Option<Subscription>,
}

/// The state of one subscription, made by `subscribe`.
struct Subscription {
    plan: Plan,
    shared: Arc<Shared>,
    asked: Asked,
    ended: oneshot::Receiver<()>,
}

/// The default of [`Topic::window`].
const WINDOW: usize = 256;

/// How long `subscribe` waits for the first assignment. Members that are slow to give partitions back may take longer.
const JOIN: Duration = Duration::from_secs(10);

/// The limit to what a broker that does not answer can delay a shutdown by. A worker waits for 5 seconds.
const CLOSE: Duration = Duration::from_secs(4);

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

    /// The consumer group, if it is not the worker's name.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.group = Some(group.into());
        self
    }

    /// Where the group begins in a partition in which it has committed nothing yet. By default at the oldest message.
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Where the group begins in this partition of this topic if it has committed nothing there, whatever
    /// [`start`](Self::start) says: at the message of this offset. It is for one partition, and can be said of several.
    ///
    /// The worker is refused where the topic has no such partition, or the partition no such offset.
    ///
    /// ```no_run
    /// # async fn example(kafka: idem_kafka::Kafka) -> Result<(), idem_core::Error> {
    /// // Goes on where a service without idem has stopped.
    /// let orders = kafka.topic("orders").await?.start_at("orders", 0, 4711).start_at("orders", 1, 4685);
    /// # Ok(()) }
    /// ```
    pub fn start_at(mut self, topic: impl Into<String>, partition: i32, offset: i64) -> Self {
        self.offsets.insert(TopicPartition { topic: topic.into().into(), number: partition }, offset);
        self
    }

    /// By which protocol the group shares its partitions out. By default [`GroupProtocol::Classic`].
    pub fn group_protocol(mut self, protocol: GroupProtocol) -> Self {
        self.protocol = protocol;
        self
    }

    /// How many deliveries of one partition may lie between its first unfinished one and the last. By default 256; zero
    /// is an error when the worker starts.
    ///
    /// A slow message at the front lets its partition go on for so many, and no further. After each assignment so many
    /// are stored in the inbox before they run, since the owner before may have died of one of them: so all members of a
    /// group need the same window, and it must not be made smaller while a group is at work. To make it smaller, stop
    /// all its members in good order first.
    pub fn window(mut self, deliveries: u16) -> Self {
        self.window = usize::from(deliveries);
        self
    }

    /// A name of this member that no other has, and that stays the same over a restart (Kafka's `group.instance.id`).
    /// Its partitions then wait for it, until its session is over, instead of moving to others and back.
    ///
    /// ```no_run
    /// # async fn example(kafka: idem_kafka::Kafka) -> Result<(), Box<dyn std::error::Error>> {
    /// // A StatefulSet of Kubernetes: `billing-0` is `billing-0` again after its restart.
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
        if options.max_unsettled == 0 {
            return refused("with 0 deliveries in flight the worker receives nothing: allow at least 1");
        }
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

    /// Goes on as the member that it was, if it can.
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

    /// Waits until the group has assigned partitions, but for no longer than 10 seconds.
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
            replay_window: self.replay_window,
            begins: BTreeMap::new(),
        };
        let shared = Arc::new(Shared::new(plan.window, plan.max_unsettled));
        let asked = Asked::default();
        let ended = consumer::start(plan.clone(), Arc::clone(&shared), asked.clone())?;
        self.subscription = Some(Subscription { plan, shared, asked, ended });
        self.joined().await?;
        self.has_consumed = true;
        Ok(())
    }

    fn has_subjects(&self) -> bool {
        false
    }

    /// The topic's `retention.ms`. A topic that is only compacted has no limit.
    fn replay_window(&self) -> ReplayWindow {
        self.replay_window
    }

    /// How far the group is behind the ends of the partitions that are ours: what is not committed, or would be at the next
    /// commit. Those of other members are theirs to tell, so that the sum over all workers is the group's. A topic of which
    /// nothing is ours, and a partition without a leader, is left out.
    fn lag(&self) -> Option<Lag> {
        let subscription = self.subscription.as_ref()?;
        Some(subscription.asked.lag(&subscription.shared))
    }

    async fn next(&mut self) -> Result<(Delivery, KafkaAcker), BoxError> {
        let Some(subscription) = &self.subscription else { return Err(self.ended().into()) };
        let (ticket, delivery) = subscription.shared.next().await.map_err(Error::from)?;
        Ok((delivery, KafkaAcker::new(Arc::clone(&subscription.shared), ticket)))
    }

    /// Stays in the group until [`close`](Source::close), so that what is finished can be committed.
    async fn drain(&mut self) {
        if let Some(subscription) = &self.subscription {
            subscription.shared.drain();
        }
    }

    /// Commits what is finished and leaves the group. Gives up after 4 seconds without an answer: the group then takes
    /// the partitions back when the session is over.
    async fn close(&mut self) {
        let Some(mut subscription) = self.subscription.take() else { return };
        subscription.shared.close();
        let _ = timeout(CLOSE, &mut subscription.ended).await;
    }
}

/// Without it the thread would stay a member of the group.
impl Drop for Subscription {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Topic")
            .field("name", &self.wanted.text)
            .field("config", &self.config)
            .field("open", &self.subscription.is_some())
            .finish_non_exhaustive()
    }
}
