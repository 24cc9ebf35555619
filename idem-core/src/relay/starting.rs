//! The work that a running relay starts next.

use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Sink;
use crate::runtime::jittered;

use super::reads::Asks;
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
        // A read that runs has left out what is woken.
        if !self.busy.reading {
            let woken = self.queue.wake(now, self.places_again(now));
            woken.into_iter().for_each(|(lane, id)| self.reopen(lane, id));
        }
        if self.queue.goes_on() {
            self.next.read = self.next.read.min(self.next.early);
        }
        self.publish(now);
        self.write(now);
        self.lease(now);
        if !self.draining {
            self.read(now);
            self.count(now);
        }
    }

    /// Stops publishing when the leases have ended. Messages that were read and confirmed stay: the relay deletes them under
    /// its token, unless another one has taken the lanes.
    fn expire(&mut self, now: Instant) {
        if self.lanes.until().is_none_or(|until| now < until) {
            return;
        }
        tracing::warn!(
            lanes = self.lanes.held().count(),
            "the leases of the relay have ended: the database could not be reached in time"
        );
        self.lanes.expire();
    }

    fn publish(&mut self, now: Instant) {
        if self.draining || !self.lanes.are_safe(now, self.settings.lease) {
            return;
        }
        let (most, quarter) = self.broker.places(self.settings.concurrency, now);
        while self.places.counted(quarter) < most
            && let Some(entry) = self.queue.next_to_publish(now, |place| self.places.has(place, quarter))
        {
            let Some(permit) = self.lanes.publish(entry.lane) else {
                // The lane is being given back, and the relay that takes it reads the message.
                self.queue.destinations.ended(&entry, now);
                self.queue.leave(&entry);
                continue;
            };
            self.places.take(entry.place);
            self.work.push(work::publish(self.sink, permit, entry, self.settings.publish_timeout));
        }
    }

    /// Deletes what is confirmed, and records what has failed.
    fn write(&mut self, now: Instant) {
        if !self.busy.deleting && !self.confirmed.is_empty() && now >= self.next.delete {
            let rest = self.confirmed.split_off(self.confirmed.len().min(DELETED));
            let rows = std::mem::replace(&mut self.confirmed, rest);
            self.busy.deleting = true;
            self.work.push(work::delete(self.store, self.outbox, self.token, rows));
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
        let mut left = self.lanes.leaving();
        if !left.is_empty() {
            // Messages that are confirmed and not deleted, or refused and not recorded.
            let unsettled = self.queue.lanes();
            left.retain(|lane| !unsettled.contains(lane));
        }
        let missing = self.share.saturating_sub(self.lanes.held().count());
        let work = if now >= self.next.renew {
            self.next.renew = now + AGAIN.min(lease / 3);
            work::renew(store, outbox, token, lease)
        } else if !left.is_empty() && now >= self.next.give && !self.draining {
            work::give(store, outbox, token, left)
        } else if missing > 0 && now >= self.next.take && !self.draining {
            // Others give lanes back, or die, at any time.
            self.next.take = now + AGAIN.min(lease / 3);
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
        let mut limit = (2 * self.settings.concurrency / self.active.max(1)).clamp(16, 2000);
        let mut lanes = self.lanes.readable();
        self.floors.read_whole(&lanes, now);
        let few = self.has_too_many_delayed();
        if few {
            // A woken message is in front of all unread ones of its lane. Keys that go on anyway are left out.
            let woken = self.queue.woken();
            lanes.retain(|lane| woken.contains_key(lane));
            limit = woken.values().copied().max().unwrap_or(1);
        }
        let limit = u32::try_from(limit).unwrap_or(u32::MAX);
        let pause = self.pause.until(now).filter(|_| !few);
        let Asks { keys, lanes: with_keys, behind } = self.queue.ask(few, pause.is_some());
        let is_visited = |lane: &u8| with_keys.contains(lane) && !behind.contains_key(lane);
        let poll = now + jittered(self.settings.poll);
        (self.next.read, self.next.early) = (poll, now + BETWEEN);
        if let Some(until) = pause {
            let all = lanes.len();
            lanes.retain(|lane| !is_visited(lane));
            if lanes.len() < all {
                // Messages that were staged there meanwhile do not wait for the poll.
                self.next.read = poll.min(until);
            }
        }
        if lanes.is_empty() {
            return;
        }
        self.pause.begin(lanes.iter().copied().filter(is_visited).collect());
        let (lanes, marks) = (self.floors.look(&lanes, limit, &behind), self.floors.wants_mark(now));
        let known = self.queue.known(&lanes);
        self.busy.reading = true;
        self.work.push(work::read(self.store, self.outbox, Look { lanes, blocked: keys, known, marks }));
    }

    fn count(&mut self, now: Instant) {
        if !self.busy.counting && now >= self.next.count {
            self.busy.counting = true;
            self.next.count = now + jittered(GAUGES);
            self.work.push(work::count(self.store, self.outbox));
        }
    }
}
