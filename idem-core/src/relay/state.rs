//! The state of a running relay.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use tokio::time::Instant;
use uuid::Uuid;

use crate::outbox::Sink;
use crate::runtime::{Health, jittered};
use crate::store::{OutboxId, RowRef};
use crate::telemetry::RelayMetrics;
use crate::{Error, Store};

use super::broker::Broker;
use super::floors::Floors;
use super::lanes::Lanes;
use super::panics::Panics;
use super::pause::Pause;
use super::places::Places;
use super::queue::Queue;
use super::settings::RelaySettings;
use super::work::{Event, Failed};

/// How many messages may wait for their next attempt before nothing new is read: so many for each that may be published
/// at a time, and at least so many. Little is kept of each.
const DELAYED: usize = 100;
const DELAYED_AT_LEAST: usize = 1000;

/// How many bytes of payloads and headers are kept before nothing more is read.
const BYTES: usize = 64 * 1024 * 1024;

/// How long to wait after a statement has failed.
pub(super) const AGAIN: Duration = Duration::from_secs(1);

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
    /// The statements and calls that run at present.
    pub(super) work: FuturesUnordered<BoxFuture<'a, Event>>,
    pub(super) lanes: Lanes,
    pub(super) queue: Queue,
    pub(super) floors: Floors,
    pub(super) pause: Pause,
    pub(super) broker: Broker,
    /// The places of all that is being published.
    pub(super) places: Places,
    /// Confirmed and not deleted.
    pub(super) confirmed: Vec<RowRef>,
    /// Refused and not recorded.
    pub(super) failures: Vec<Failed>,
    /// The statements that run at present. Each kind runs once at a time.
    pub(super) busy: Busy,
    /// When each kind of statement runs next.
    pub(super) next: Next,
    /// Deleted or restarted while a read runs, whose answer is older.
    pub(super) deleted: HashSet<i64>,
    pub(super) restarted: BTreeSet<u8>,
    /// How many lanes the last read has found messages in.
    pub(super) active: usize,
    /// The fair share of lanes.
    pub(super) share: usize,
    pub(super) draining: bool,
    pub(super) panics: Panics,
    /// That the sink is broken.
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
    pub(super) give: Instant,
    pub(super) take: Instant,
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
        let next =
            Next { read: now, early: now, delete: now, record: now, renew: now, give: now, take: now, count: now };
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
            queue: Queue::new(settings.concurrency),
            floors: Floors::new(now),
            pause: Pause::default(),
            broker: Broker::default(),
            places: Places::default(),
            confirmed: Vec::new(),
            failures: Vec::new(),
            busy: Busy::default(),
            next,
            deleted: HashSet::new(),
            restarted: BTreeSet::new(),
            active: 1,
            // Known by the first renewal.
            share: 0,
            draining: false,
            panics: Panics::default(),
            defect: None,
        }
    }

    /// When something can be started next, if nothing happens before. All that can be started at `now` is.
    pub(super) fn next(&self, now: Instant) -> Instant {
        let Next { delete, record, renew, take, count, .. } = &self.next;
        let when = |wanted: bool, time: &Instant| wanted.then_some(*time);
        let times = [
            self.broker.until().filter(|until| *until > now),
            self.queue.next_due(self.places_again(now)).filter(|_| !self.busy.reading),
            // Those that are due wait for a place.
            self.queue.destinations.next_due().filter(|due| *due > now),
            self.lanes.until(),
            when(!self.busy.leasing && !self.draining && self.lanes.held().count() < self.share, take),
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

    /// Returns whether there are enough messages. Those that wait behind another one of their key leave room for other keys.
    /// Those whose turn has come are read also when too many others wait.
    pub(super) fn is_full(&self) -> bool {
        self.queue.firsts() >= self.settings.concurrency
            || self.queue.len() >= self.queue.room.0
            || self.queue.bytes() >= BYTES
            || self.has_too_many_delayed() && self.queue.woken().is_empty()
    }

    /// Returns whether nothing new is read, because too many messages wait for their next attempt.
    pub(super) fn has_too_many_delayed(&self) -> bool {
        self.queue.delayed() >= self.settings.concurrency.saturating_mul(DELAYED).max(DELAYED_AT_LEAST)
    }

    /// How many more messages may be published of which an earlier attempt got no answer.
    pub(super) fn places_again(&self, now: Instant) -> usize {
        self.broker.places(self.settings.concurrency, now).1.saturating_sub(self.places.again())
    }

    /// Reads at once, because something was staged in this process.
    pub(super) fn ring(&mut self) {
        self.next.read = self.next.read.min(self.next.early);
    }

    /// Returns whether all that was published is deleted, and all that failed is recorded.
    pub(super) fn is_drained(&self) -> bool {
        let idle = !self.busy.deleting && !self.busy.recording && !self.busy.leasing;
        idle && self.places.taken() == 0 && self.confirmed.is_empty() && self.failures.is_empty()
    }

    /// Reads a lane from this id, because a message without a key is to be published again.
    pub(super) fn reopen(&mut self, lane: u8, id: i64) {
        self.floors.reopen(lane, id);
        self.next.read = self.next.read.min(self.next.early);
    }

    /// Reads a lane from its start.
    pub(super) fn restart(&mut self, lane: u8) {
        self.floors.forget(lane);
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
        self.confirmed.retain(|row| !lanes.contains(&row.lane));
        self.failures.retain(|failed| !lanes.contains(&failed.entry.lane));
        lanes.iter().for_each(|lane| self.restart(*lane));
    }

    /// When a statement that has failed is tried again.
    pub(super) fn again(&self) -> Instant {
        Instant::now() + jittered(AGAIN.min(self.settings.lease / 10))
    }
}
