//! How a running relay treats destinations that hang.

use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Sink;

use super::entry::{Entry, Place};
use super::queue::Queue;
use super::state::Running;
use super::work::Answer;

/// With fewer places than these, none could be kept for others.
const FEW: usize = 4;

/// A client may give up before the relay does. That counts as no answer if it took so long, or half of the timeout.
const LONG: Duration = Duration::from_secs(5);

impl<S: Store, K: Sink> Running<'_, S, K> {
    /// Records the end of a call, and whether the destination of its message hangs. Returns whether it got no answer in time.
    pub(super) fn heard(&mut self, entry: &Entry, began: Instant, now: Instant, answer: &Answer) -> bool {
        let to = entry.message.to();
        let long = LONG.min(self.settings.publish_timeout / 2);
        let is_late = match answer {
            // A refusal may be that of the client, which has asked nobody.
            Answer::Confirmed => {
                if self.queue.confirmed(entry, now) {
                    tracing::info!(to, "a destination answers again");
                }
                false
            }
            Answer::Late(error) | Answer::Away(error)
                if self.settings.concurrency >= FEW
                    && (now.duration_since(began) >= long || self.queue.destinations.hangs(to)) =>
            {
                if self.queue.destinations.late(entry, began, now) {
                    tracing::warn!(to, error, "a destination gives no answer: it is tried with one message at a time");
                }
                true
            }
            _ => false,
        };
        self.queue.destinations.ended(entry, now);
        is_late
    }
}

impl Queue {
    /// Takes the next message to publish, and sets aside those in front of it whose destination hangs. `has_place` says
    /// whether there is a place of a kind.
    pub(super) fn next_to_publish(&mut self, now: Instant, has_place: impl Fn(Place) -> bool) -> Option<Entry> {
        loop {
            // These have few places, and others may leave none of them free.
            if has_place(Place::Aside)
                && let Some(entry) = self.destinations.next_in_turn(now)
            {
                return Some(entry);
            }
            if has_place(Place::GoesOn)
                && let Some(entry) = self.destinations.next_to_go_on()
            {
                return Some(entry);
            }
            let entry = self.next(has_place(Place::Again))?;
            if !self.sets_aside(&entry) {
                return Some(entry);
            }
            self.set_aside(entry, now);
        }
    }

    /// Records that a message was confirmed. Returns whether its destination had hung, and does so no more. Then those that
    /// got no answer are read and published again, in the places of such messages.
    pub(super) fn confirmed(&mut self, entry: &Entry, now: Instant) -> bool {
        let tried = self.destinations.confirmed(entry);
        tried.iter().flatten().for_each(|entry| self.delay_unanswered(entry, now));
        tried.is_some()
    }

    /// Returns whether a message has to be set aside, because its destination hangs. If too many were, it is published as
    /// others are.
    pub(super) fn sets_aside(&self, entry: &Entry) -> bool {
        self.destinations.hangs(entry.message.to()) && self.destinations.has_room(entry, self.room)
    }

    /// Lets a message that is under way wait, because its destination hangs. It stays in front of its key. Messages behind
    /// it are forgotten, and read again later.
    pub(super) fn set_aside(&mut self, entry: Entry, now: Instant) {
        if let Some(key) = entry.key()
            && let Some(of_key) = self.keys.get_mut(key)
        {
            of_key.is_aside = true;
            for later in std::mem::take(&mut of_key.waiting) {
                of_key.leave(later.id);
                self.known.remove(later.id);
                self.delays.forget_tries(later.id);
                self.behind -= 1;
            }
        }
        self.destinations.push(entry, now);
    }
}

#[cfg(test)]
mod tests;
