//! The tenure of an active relay: what it knows and does between the begin and the end of its lease.
//!
//! It is one task with one state. It publishes, reads, deletes what is confirmed and records what was refused, all beside each
//! other, each kind of statement once at a time. With the tenure all that it knows is dropped, and its calls with it.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use tokio::task::coop::unconstrained;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::outbox::Sink;
use crate::store::{LeaseRequest, OutboxId, PublishFailure, RowRef};
use crate::telemetry::RelayMetrics;
use crate::worker::Member;
use crate::{Error, Store};

use super::answers::Done;
use super::builder::Relay;
use super::circuit::{Broker, Circuits};
use super::low_water::LowWater;
use super::publish::{Published, publish};
use super::queue::Queue;
use super::reads::WALK;

/// How many messages are kept in memory: so many for each that may be published at a time, at least so many, and at most so many.
const EACH: usize = 20;
const AT_LEAST: usize = 1000;
const AT_MOST: usize = 100_000;

/// The most rows that one DELETE names, and the most failures that are recorded at once: their texts may be long.
const DELETED: usize = 1000;
const RECORDED: usize = 100;

/// How often to look at least whether the time of anything has come: of a retry, of a probe or of the lease.
const TICK: Duration = Duration::from_millis(10);

/// How often the lease is renewed at least.
const RENEWED: Duration = Duration::from_secs(5);

/// How long to wait after a statement has failed.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

/// How a tenure ends.
#[derive(Debug)]
pub(super) enum End {
    /// The relay is stopped.
    Stopped,
    /// Another relay has the lease.
    Lost,
    /// The database or the table is another one.
    Replaced,
    /// The broker is away for this relay, and may answer another one.
    Away,
    /// The sink is broken.
    Defect(Error),
}

/// The tenure of an active relay.
pub(super) struct Tenure<'a, S, K> {
    pub(super) relay: &'a Relay<S, K>,
    pub(super) metrics: &'a RelayMetrics,
    pub(super) member: &'a Member,
    outbox: OutboxId,
    token: Uuid,
    /// Until when it has the lease, by the clock of this process: measured from before it asked for it. After that it has it under
    /// its token until another relay takes it.
    until: Instant,
    pub(super) low_water: LowWater,
    pub(super) queue: Queue,
    pub(super) circuits: Circuits,
    pub(super) broker: Broker,
    /// The messages at which the sink has panicked since it last answered.
    pub(super) panics: HashSet<i64>,
    /// The calls of the sink, and the messages that they are for, with whether each has a slot of the slow ones.
    publishing: FuturesUnordered<BoxFuture<'a, Published>>,
    pub(super) flying: HashMap<i64, bool>,
    statements: FuturesUnordered<BoxFuture<'a, Done>>,
    pub(super) next: Next,
    /// The kind of read that was last, and how many there were since the last one from the low-water mark.
    pub(super) turn: usize,
    pub(super) since_low_water: usize,
    /// Confirmed and not deleted; refused and not recorded.
    pub(super) confirmed: Vec<RowRef>,
    pub(super) failures: Vec<PublishFailure>,
    /// A delete had no answer, so the next one may find nothing.
    pub(super) is_repeated: bool,
    pub(super) end: Option<End>,
}

/// When each kind of statement runs next. `None`: it runs.
#[derive(Debug)]
pub(super) struct Next {
    /// From the low-water mark, and the earliest time of such a read.
    pub(super) read: Instant,
    pub(super) early: Instant,
    /// Below it.
    pub(super) walk: Instant,
    /// The earliest time of any read: it is later than now behind one that has failed.
    pub(super) again: Option<Instant>,
    pub(super) delete: Option<Instant>,
    pub(super) record: Option<Instant>,
    pub(super) renew: Option<Instant>,
}

impl<'a, S: Store, K: Sink> Tenure<'a, S, K> {
    pub(super) fn new(
        relay: &'a Relay<S, K>,
        (metrics, member): (&'a RelayMetrics, &'a Member),
        (outbox, token): (OutboxId, Uuid),
        began: Instant,
    ) -> Self {
        let now = Instant::now();
        let soon = Some(now);
        let next =
            Next { read: now, early: now, walk: now + WALK, again: soon, delete: soon, record: soon, renew: None };
        let mut tenure = Self {
            relay,
            metrics,
            member,
            outbox,
            token,
            until: began,
            low_water: LowWater::new(),
            queue: Queue::new(relay.settings.concurrency.saturating_mul(EACH).clamp(AT_LEAST, AT_MOST)),
            circuits: Circuits::default(),
            broker: Broker::default(),
            panics: HashSet::new(),
            publishing: FuturesUnordered::new(),
            flying: HashMap::new(),
            statements: FuturesUnordered::new(),
            next,
            turn: 0,
            since_low_water: 0,
            confirmed: Vec::new(),
            failures: Vec::new(),
            is_repeated: false,
            end: None,
        };
        tenure.leased(began);
        tenure
    }

    /// Records that it has the lease, for which it asked at this time.
    pub(super) fn leased(&mut self, began: Instant) {
        let length = self.relay.settings.lease;
        self.until = began + length;
        self.next.renew = Some(began + RENEWED.min(length / 3));
    }

    /// Publishes until it is stopped, the lease is lost, the broker is away for too long, or the sink is broken.
    pub(super) async fn run(&mut self, stop: &CancellationToken) -> End {
        let mut notifier = self.relay.store.facts().notifier.listen();
        loop {
            if let Some(end) = self.end.take() {
                return end;
            }
            let now = Instant::now();
            if self.broker.is_lost(now, self.relay.settings.publish_timeout) {
                return End::Away;
            }
            self.start(now);
            let next = self.next(now);
            tokio::select! {
                biased;
                () = stop.cancelled() => return End::Stopped,
                Some(done) = self.statements.next() => self.apply(done),
                Some(published) = self.publishing.next() => self.published(published),
                // The sender lives in the store, so waiting cannot fail.
                _ = notifier.changed() => self.read_soon(),
                // The lease is renewed then. It comes behind the sink, which may have used up what tokio allows a task in a turn.
                () = unconstrained(sleep_until(next)) => {}
            }
            // All that has ended by now, before anything is started.
            while let Some(Some(published)) = self.publishing.next().now_or_never() {
                self.published(published);
            }
        }
    }

    /// Waits for the confirms of what is published, and writes what they say.
    pub(super) async fn drain(&mut self) {
        if timeout(self.relay.settings.shutdown_timeout, self.drained()).await.is_err() {
            tracing::warn!("the shutdown timeout has elapsed: what is not confirmed is published again");
        }
    }

    async fn drained(&mut self) {
        loop {
            self.keep(Instant::now());
            let is_written = self.confirmed.is_empty() && self.failures.is_empty();
            let runs = [self.next.delete, self.next.record, self.next.renew].contains(&None);
            // Without the lease, nothing can be written.
            let is_lost = matches!(self.end, Some(End::Lost | End::Replaced));
            if is_lost || is_written && !runs && self.flying.is_empty() {
                return;
            }
            tokio::select! {
                Some(done) = self.statements.next() => self.apply(done),
                Some(published) = self.publishing.next() => self.published(published),
                () = sleep(TICK) => {}
            }
        }
    }

    /// Starts all that can be started now.
    fn start(&mut self, now: Instant) {
        self.keep(now);
        self.publish(now);
        if let Some(read) = self.next_read(now) {
            self.next.again = None;
            let (store, outbox) = (&self.relay.store, self.outbox);
            self.statements.push(Box::pin(async move {
                let found = store.read_outbox(outbox, &read).await;
                Done::Read { read, began: now, found }
            }));
        }
    }

    /// Writes what is to be written, and renews the lease.
    fn keep(&mut self, now: Instant) {
        self.write(now);
        if self.next.renew.take_if(|renew| *renew <= now).is_some() {
            let (store, outbox, token) = (&self.relay.store, self.outbox, self.token);
            let request = LeaseRequest::Hold(self.relay.settings.lease);
            let lease =
                async move { Done::Leased { began: now, answer: store.lease_outbox(outbox, token, request).await } };
            self.statements.push(Box::pin(lease));
        }
    }

    /// Publishes what is ready, as far as there are slots.
    fn publish(&mut self, now: Instant) {
        if !is_safe(self.until, self.relay.settings.lease, now) {
            return;
        }
        let most = self.broker.slots(self.relay.settings.concurrency, now);
        let quarter = (most / 4).max(1);
        let mut slow = self.flying.values().filter(|is_slow| **is_slow).count();
        self.queue.wake_due(now, quarter.saturating_sub(slow));
        if most > 0 {
            self.queue.wake(self.circuits.probes(now, quarter));
        }
        while self.flying.len() < most
            && let Some((id, is_slow)) = self.queue.next(slow < quarter)
        {
            let Some(message) = self.queue.get(id).and_then(|row| row.message.clone()) else { continue };
            if self.waits(message.to(), id) {
                continue;
            }
            self.flying.insert(id, is_slow);
            slow += usize::from(is_slow);
            self.publishing.push(publish(&self.relay.sink, (id, message), self.relay.settings.publish_timeout));
        }
    }

    /// Lets a message wait if the circuit of its destination is open, unless it is the probe.
    fn waits(&mut self, to: &str, id: i64) -> bool {
        let waits = self.circuits.is_open(to) && !self.circuits.is_probe(to, id);
        if waits {
            self.park_for(to, id);
        }
        waits
    }

    /// Makes messages ready, or lets them wait for their destinations.
    pub(super) fn enqueue(&mut self, next: impl IntoIterator<Item = i64>) {
        for id in next {
            let Some(message) = self.queue.get(id).and_then(|row| row.message.clone()) else { continue };
            if !self.waits(message.to(), id) {
                self.queue.ready(id, self.circuits.is_slow(message.to()));
            }
        }
    }

    /// Deletes what is confirmed, and records what was refused.
    fn write(&mut self, now: Instant) {
        let (store, outbox, token) = (&self.relay.store, self.outbox, self.token);
        if !self.confirmed.is_empty() && self.next.delete.take_if(|delete| *delete <= now).is_some() {
            let rows: Vec<_> = self.confirmed.drain(..self.confirmed.len().min(DELETED)).collect();
            self.statements.push(Box::pin(async move {
                let deleted = store.delete_published(outbox, token, &rows).await;
                Done::Deleted { rows, deleted }
            }));
        }
        if !self.failures.is_empty() && self.next.record.take_if(|record| *record <= now).is_some() {
            let failures: Vec<_> = self.failures.drain(..self.failures.len().min(RECORDED)).collect();
            self.statements.push(Box::pin(async move {
                let recorded = store.record_failures(outbox, token, &failures).await;
                Done::Recorded { failures, recorded }
            }));
        }
    }

    /// When to look again for what can be started, if nothing happens before: at the time of the next read, or soon.
    fn next(&self, now: Instant) -> Instant {
        let again = self.next.again.filter(|_| !self.is_full());
        let read = again.map(|again| self.next.read.min(self.next.walk).max(again));
        read.unwrap_or(now + TICK).clamp(now + Duration::from_millis(1), now + TICK)
    }
}

/// Returns whether so much is left of a lease of this length that a message may be published.
fn is_safe(until: Instant, length: Duration, now: Instant) -> bool {
    now + length / 3 < until
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_is_published_in_the_last_third_of_a_lease() {
        let (now, length) = (Instant::now(), Duration::from_secs(9));
        let is_safe = |millis| is_safe(now + length, length, now + Duration::from_millis(millis));
        assert!(is_safe(5999) && !is_safe(6000) && !is_safe(9001));
    }
}
