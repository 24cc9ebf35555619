//! Messages that wait for their next attempt, and when they are read again.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::delays::Delayed;
use super::entry::Entry;
use super::queue::Queue;

impl Queue {
    /// Keeps the id of a message that is not under way, until its next attempt. Messages of its key wait.
    pub(super) fn delay(&mut self, entry: &Entry, now: Instant, delay: Duration) {
        let delayed = self.lighten(entry);
        self.delays.insert(entry.id, delayed, now, delay);
    }

    /// Delays a message that got no answer.
    pub(super) fn delay_unanswered(&mut self, entry: &Entry, until: Instant) {
        let delayed = self.lighten(entry);
        self.delays.insert_unanswered(entry.id, delayed, entry.tries, until);
        self.end(entry);
    }

    fn lighten(&mut self, entry: &Entry) -> Delayed {
        self.hold_key(entry);
        self.known.lighten(entry.id);
        Delayed { lane: entry.lane, key: entry.key().cloned() }
    }

    /// Forgets the messages whose time has come; of those without an answer as many as there are places for. Those with a
    /// key are unread. Returns the lanes and ids of the others, from which on has to be read again.
    pub(super) fn wake(&mut self, now: Instant, places: usize) -> Vec<(u8, i64)> {
        let mut woken = Vec::new();
        for (id, Delayed { lane, key }) in self.delays.wake(now, places.saturating_sub(self.ready.again())) {
            // One in front of it may have failed meanwhile: then it was or is read again with that one.
            if key.is_none() || self.release(key.as_ref(), id) {
                self.known.remove(id);
            }
            woken.extend(key.is_none().then_some((lane, id)));
        }
        woken
    }

    /// When the time of the next message comes.
    pub(super) fn next_due(&self, places: usize) -> Option<Instant> {
        self.delays.next_due(places.saturating_sub(self.ready.again()))
    }

    /// The lanes of messages that were woken and are not read, with the number of these messages.
    pub(super) fn woken(&self) -> &BTreeMap<u8, usize> {
        self.delays.woken()
    }

    /// How many messages wait for their next attempt.
    pub(super) fn delayed(&self) -> usize {
        self.delays.len()
    }
}
