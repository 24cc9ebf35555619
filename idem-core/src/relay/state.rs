//! The state of a running relay, and what it starts next.

use std::collections::BTreeSet;
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use uuid::Uuid;

use crate::outbox::Sink;
use crate::runtime::{Health, jittered};
use crate::store::{LaneLook, OutboxId};
use crate::telemetry::RelayMetrics;
use crate::{Error, Store};

use super::broker::Broker;
use super::floors::Floors;
use super::lanes::Lanes;
use super::queue::Queue;
use super::settings::RelaySettings;
use super::work::{self, Event, Failed, Look};

/// How many messages may wait for their next attempt before nothing more is read.
const DELAYED: usize = 5000;

/// The most rows that one DELETE names.
const DELETED: usize = 1000;

/// The shortest time between the beginnings of two reads, if the first one was not full.
const BETWEEN: Duration = Duration::from_millis(2);

/// How long to wait after a statement has failed.
const AGAIN: Duration = Duration::from_secs(1);

/// How often the gauges are read.
const GAUGES: Duration = Duration::from_secs(15);

/// The state of a running relay.
pub(super) struct Running<'a, S, K> {
    pub(super) store: &'a S,
    pub(super) sink: &'a K,
    pub(super) outbox: OutboxId,
    pub(super) settings: &'a RelaySettings,
    pub(super) health: &'a Health,
    pub(super) metrics: RelayMetrics,
    /// The name under which it holds lanes.
    pub(super) token: Uuid,
    /// What runs at present.
    pub(super) work: FuturesUnordered<BoxFuture<'a, Event>>,
    pub(super) lanes: Lanes,
    pub(super) queue: Queue,
    pub(super) floors: Floors,
    pub(super) broker: Broker,
    pub(super) publishing: usize,
    /// Confirmed and not deleted.
    pub(super) confirmed: Vec<(u8, i64)>,
    /// Refused and not recorded.
    pub(super) failures: Vec<Failed>,
    /// The statements that run at present. Each kind runs once at a time.
    pub(super) busy: Busy,
    /// When each kind of statement runs next.
    pub(super) next: Next,
    /// Deleted or restarted while a read runs, whose answer is older.
    pub(super) deleted: Vec<i64>,
    pub(super) restarted: BTreeSet<u8>,
    /// How many lanes the last read has found messages in.
    pub(super) active: usize,
    /// The fair share of lanes.
    pub(super) share: usize,
    pub(super) draining: bool,
    /// A panic of the sink.
    pub(super) defect: Option<Error>,
}

/// The statements that run at present.
#[derive(Debug, Default)]
pub(super) struct Busy {
    pub(super) reading: bool,
    pub(super) deleting: bool,
    pub(super) recording: bool,
    /// Renewing, taking or giving lanes.
    pub(super) leasing: bool,
    pub(super) counting: bool,
}

/// When each kind of statement runs next.
#[derive(Debug)]
pub(super) struct Next {
    pub(super) read: Instant,
    /// The earliest time of a read that the bell asks for.
    pub(super) early: Instant,
    pub(super) delete: Instant,
    pub(super) record: Instant,
    pub(super) renew: Instant,
    pub(super) take: Option<Instant>,
    pub(super) count: Instant,
}

impl<'a, S: Store, K: Sink> Running<'a, S, K> {
    pub(super) fn new(
        (store, sink, outbox): (&'a S, &'a K, OutboxId),
        settings: &'a RelaySettings,
        health: &'a Health,
        metrics: RelayMetrics,
    ) -> Self {
        let now = Instant::now();
        let next = Next { read: now, early: now, delete: now, record: now, renew: now, take: None, count: now };
        Self {
            store,
            sink,
            outbox,
            settings,
            health,
            metrics,
            token: Uuid::new_v4(),
            work: FuturesUnordered::new(),
            lanes: Lanes::default(),
            queue: Queue::default(),
            floors: Floors::new(now),
            broker: Broker::default(),
            publishing: 0,
            confirmed: Vec::new(),
            failures: Vec::new(),
            busy: Busy::default(),
            next,
            deleted: Vec::new(),
            restarted: BTreeSet::new(),
            active: 1,
            share: usize::from(store.outbox_lanes()),
            draining: false,
            defect: None,
        }
    }

    /// Starts all that can be started now.
    pub(super) fn start(&mut self, now: Instant) {
        self.expire(now);
        for lane in self.queue.wake(now) {
            self.restart(lane);
        }
        self.publish(now);
        self.write(now);
        self.lease(now);
        if !self.draining {
            self.read(now);
            self.count(now);
        }
    }

    /// When something can be started next, if nothing happens before.
    pub(super) fn next(&self) -> Instant {
        let (now, Next { delete, record, renew, count, .. }) = (Instant::now(), &self.next);
        let when = |wanted: bool, time: &Instant| wanted.then_some(*time);
        let times = [
            self.broker.until().filter(|until| *until > now),
            self.queue.next_due(),
            self.lanes.until(),
            self.next.take.filter(|_| !self.busy.leasing && !self.draining),
            when(!self.busy.leasing, renew),
            when(!self.busy.counting && !self.draining, count),
            when(!self.busy.reading && !self.draining && !self.is_full(), &self.next.read),
            when(!self.busy.deleting && !self.confirmed.is_empty(), delete),
            when(!self.busy.recording && !self.failures.is_empty(), record),
        ];
        let next = times.into_iter().flatten().min();
        // Whatever was forgotten here is found then.
        next.unwrap_or(now + AGAIN).clamp(now + Duration::from_millis(1), now + AGAIN)
    }

    /// Returns whether there are enough messages.
    fn is_full(&self) -> bool {
        self.queue.len() >= self.settings.concurrency || self.queue.delayed() >= DELAYED
    }

    /// Reads at once, because something was staged in this process.
    pub(super) fn ring(&mut self) {
        self.next.read = self.next.read.min(self.next.early);
    }

    /// Returns whether all that was published is deleted, and all that failed is recorded.
    pub(super) fn is_drained(&self) -> bool {
        let idle = !self.busy.deleting && !self.busy.recording && !self.busy.leasing;
        idle && self.publishing == 0 && self.confirmed.is_empty() && self.failures.is_empty()
    }

    /// Reads a lane from the start.
    pub(super) fn restart(&mut self, lane: u8) {
        self.floors.restart(lane);
        if self.busy.reading {
            self.restarted.insert(lane);
        }
        self.next.read = self.next.read.min(self.next.early);
    }

    /// Drops these lanes: their messages belong to another relay.
    pub(super) fn drop_lanes(&mut self, lanes: &BTreeSet<u8>) {
        if lanes.is_empty() {
            return;
        }
        self.queue.drop_lanes(lanes);
        self.confirmed.retain(|(lane, _)| !lanes.contains(lane));
        self.failures.retain(|failed| !lanes.contains(&failed.entry.lane));
        lanes.iter().for_each(|lane| self.restart(*lane));
    }

    /// Drops all lanes when their leases have ended.
    fn expire(&mut self, now: Instant) {
        if self.lanes.until().is_none_or(|until| now < until) {
            return;
        }
        let all: BTreeSet<u8> = self.lanes.held().collect();
        tracing::warn!(lanes = all.len(), "the leases of the relay have ended: the database could not be reached in time");
        self.lanes.lose(&all);
        self.lanes.expire();
        self.drop_lanes(&all);
    }

    fn publish(&mut self, now: Instant) {
        if self.draining || !self.lanes.are_safe(now, self.settings.lease) {
            return;
        }
        let mut room = self.broker.room(self.publishing, self.settings.concurrency, now);
        while room > 0
            && let Some(entry) = self.queue.next()
        {
            let Some(permit) = self.lanes.publish(entry.lane) else {
                // The lane is being given back: whoever takes it reads the message.
                self.queue.forget([entry.id]);
                continue;
            };
            self.publishing += 1;
            room -= 1;
            self.work.push(work::publish(self.sink, permit, entry, self.settings.publish_timeout));
        }
    }

    /// Deletes what is confirmed, and records what has failed.
    fn write(&mut self, now: Instant) {
        if !self.busy.deleting && !self.confirmed.is_empty() && now >= self.next.delete {
            let rest = self.confirmed.split_off(self.confirmed.len().min(DELETED));
            let ids = std::mem::replace(&mut self.confirmed, rest);
            self.busy.deleting = true;
            self.work.push(work::delete(self.store, self.outbox, self.token, ids));
        }
        if !self.busy.recording && !self.failures.is_empty() && now >= self.next.record {
            self.busy.recording = true;
            let failures = std::mem::take(&mut self.failures);
            self.work.push(work::record(self.store, self.outbox, self.token, failures));
        }
    }

    /// Renews, gives back or takes lanes; one of these at a time.
    fn lease(&mut self, now: Instant) {
        if self.busy.leasing {
            return;
        }
        let (store, outbox, token, lease) = (self.store, self.outbox, self.token, self.settings.lease);
        let unwritten = |lane: &u8| {
            let is_named = self.confirmed.iter().any(|(of, _)| of == lane)
                || self.failures.iter().any(|failed| failed.entry.lane == *lane);
            is_named || self.busy.deleting || self.busy.recording
        };
        let left: BTreeSet<u8> = self.lanes.left().into_iter().filter(|lane| !unwritten(lane)).collect();
        let work = if now >= self.next.renew {
            self.next.renew = now + AGAIN.min(lease / 3);
            work::renew(store, outbox, token, lease)
        } else if !left.is_empty() && !self.draining {
            work::give(store, outbox, token, left)
        } else if self.next.take.is_some_and(|take| now >= take) && !self.draining {
            self.next.take = None;
            let missing = self.share.saturating_sub(self.lanes.held().count());
            if missing == 0 {
                return;
            }
            work::take(store, outbox, token, lease, missing)
        } else {
            return;
        };
        self.busy.leasing = true;
        self.work.push(work);
    }

    fn read(&mut self, now: Instant) {
        if self.busy.reading || now < self.next.read || self.is_full() {
            return;
        }
        self.floors.read_all_in_time(now);
        let limit = (2 * self.settings.concurrency / self.active.max(1)).clamp(16, 2000);
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let look = |lane: u8| LaneLook { lane, floor: self.floors.of(lane), limit };
        let lanes: Vec<LaneLook> = self.lanes.readable().into_iter().map(look).collect();
        self.next.read = now + jittered(self.settings.poll);
        self.next.early = now + BETWEEN;
        if lanes.is_empty() {
            return;
        }
        let (blocked, known) = (self.queue.blocked(), self.queue.known());
        let (open, marks) = (self.floors.open().to_vec(), self.floors.wants_mark());
        self.busy.reading = true;
        self.work.push(work::read(self.store, self.outbox, Look { lanes, blocked, known, open, marks }));
    }

    fn count(&mut self, now: Instant) {
        if !self.busy.counting && now >= self.next.count {
            self.busy.counting = true;
            self.next.count = now + jittered(GAUGES);
            self.work.push(work::count(self.store, self.outbox));
        }
    }

    /// When a statement that has failed is tried again.
    pub(super) fn again(&self) -> Instant {
        Instant::now() + jittered(AGAIN.min(self.settings.lease / 10))
    }
}
