//! What a running relay starts next.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Sink;
use crate::runtime::jittered;
use crate::store::LaneLook;

use super::state::{AGAIN, Running};
use super::work::{self, Look};

/// The most rows that one DELETE names.
const DELETED: usize = 1000;

/// The shortest time between the beginnings of two reads, if the first one was not full.
const BETWEEN: Duration = Duration::from_millis(2);

/// How often the gauges are read.
const GAUGES: Duration = Duration::from_secs(15);

impl<S: Store, K: Sink> Running<'_, S, K> {
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

    /// Drops all lanes when their leases have ended.
    fn expire(&mut self, now: Instant) {
        if self.lanes.until().is_none_or(|until| now < until) {
            return;
        }
        let all: BTreeSet<u8> = self.lanes.held().collect();
        tracing::warn!(
            lanes = all.len(),
            "the leases of the relay have ended: the database could not be reached in time"
        );
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
}
