//! The topics of a subscription, kept in line with its patterns.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};

use crate::connection::resolve;
use crate::error::{Loss, no_id};
use crate::member::Member;
use crate::start;

/// How long to wait for an answer. Nothing else is served meanwhile.
const ANSWER: Duration = Duration::from_secs(1);

/// How often to check whether a topic is gone while the client keeps reporting it.
const SHAKEN: Duration = Duration::from_secs(1);

/// How long to wait for a topic's id. It arrives with the metadata and only has to be read.
pub(crate) const IDENTIFIED: Duration = Duration::from_secs(3);

/// The topics that are subscribed to.
pub(crate) struct Subscribed {
    topics: BTreeSet<Arc<str>>,
    /// The topics to subscribe to once their ids are known, and when the wait for the ids began.
    next: Option<(BTreeSet<Arc<str>>, Instant)>,
    checked: Instant,
    /// How often to look for new topics, or `None` for never.
    every: Option<Duration>,
}

impl Subscribed {
    /// Starts with the topics of the plan, which are subscribed to as soon as their ids are known.
    pub(crate) fn begin(member: &Member, consumer: &BaseConsumer<Member>) -> Result<Self, Loss> {
        let topics: BTreeSet<_> = member.plan.known.keys().map(Arc::clone).collect();
        for topic in &topics {
            consumer.fetch_metadata(Some(topic), start::ANSWER).map_err(|error| member.broken(&error))?;
        }
        let every = member.plan.wanted.has_patterns().then(|| refresh(member)).flatten();
        let now = Instant::now();
        Ok(Self { topics: BTreeSet::new(), next: Some((topics, now)), checked: now, every })
    }

    /// Whether the first subscription was made.
    pub(crate) fn has_begun(&self) -> bool {
        !self.topics.is_empty()
    }

    /// Subscribes to new topics and unsubscribes from those that are gone.
    pub(crate) fn follow(&mut self, member: &Member, consumer: &BaseConsumer<Member>) -> Result<(), Loss> {
        self.check(member, consumer)?;
        let Some((topics, since)) = &self.next else { return Ok(()) };
        if let Some(topic) = topics.iter().find(|topic| !member.is_identified(topic)) {
            let patient = since.elapsed() < IDENTIFIED && !member.shared.lock().closing;
            return if patient { Ok(()) } else { Err(no_id(&member.plan.config.place, topic)) };
        }
        let names: Vec<&str> = topics.iter().map(|topic| &**topic).collect();
        consumer.subscribe(&names).map_err(|error| member.broken(&error))?;
        if self.has_begun() {
            self.log_changes(member);
        }
        self.topics = self.next.take().map(|(topics, _)| topics).unwrap_or_default();
        Ok(())
    }

    fn check(&mut self, member: &Member, consumer: &BaseConsumer<Member>) -> Result<(), Loss> {
        let age = self.checked.elapsed();
        let shaken = member.shaken.load(Ordering::Relaxed) && age >= SHAKEN;
        let due = self.every.is_some_and(|every| age >= every);
        if self.next.is_some() || !(shaken || due) || member.shared.is_lost() {
            return Ok(());
        }
        self.checked = Instant::now();
        let ask = |topic: Option<&str>| consumer.fetch_metadata(topic, ANSWER).map_err(|error| member.broken(&error));
        // A member that ended because a topic is forbidden would pass its partitions on to another one, which would end
        // as well. The partitions are stalled, or the group has taken them away, until the topic is allowed again.
        let keeps = |topic: &str| self.topics.contains(topic);
        let known = match resolve(&member.plan.config, &member.plan.wanted, ask, keeps) {
            Ok(known) => known,
            Err(Loss::Broker(what, error)) => {
                tracing::debug!(what, error, "cannot list the topics; retried soon");
                return Ok(());
            }
            Err(refused) => return Err(refused),
        };
        let topics: BTreeSet<_> = known.into_keys().collect();
        member.forget_others(&topics);
        for topic in topics.difference(&self.topics) {
            // Makes the client log the topic's id.
            if let Err(loss) = ask(Some(topic)) {
                tracing::debug!(%topic, ?loss, "cannot read a new topic; retried soon");
                return Ok(());
            }
        }
        member.shaken.store(false, Ordering::Relaxed);
        if topics != self.topics {
            self.next = Some((topics, Instant::now()));
        }
        Ok(())
    }

    /// Logs changes of the topics.
    fn log_changes(&self, member: &Member) {
        let Some((next, _)) = &self.next else { return };
        for topic in self.topics.difference(next) {
            tracing::error!(%topic, "a topic was deleted, or may no longer be seen, and is not consumed");
        }
        for topic in next.difference(&self.topics) {
            tracing::info!(%topic, wanted = %member.plan.wanted.text, "a topic that matches is new, and is consumed");
        }
    }
}

/// The metadata refresh interval of the client.
fn refresh(member: &Member) -> Option<Duration> {
    let interval = member.plan.config.client.get("topic.metadata.refresh.interval.ms");
    let millis: i64 = interval.and_then(|interval| interval.parse().ok()).unwrap_or(300_000);
    u64::try_from(millis).ok().filter(|millis| *millis > 0).map(Duration::from_millis)
}
