//! How a running relay treats destinations that hang.

use std::time::Duration;

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Sink;

use super::entry::Entry;
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
        self.queue.destinations.ended(entry);
        let to = entry.message.to();
        let long = LONG.min(self.settings.publish_timeout / 2);
        match answer {
            // A refusal may be that of the client, which has asked nobody.
            Answer::Confirmed => {
                if self.queue.destinations.confirmed(to) {
                    tracing::info!(to, "a destination answers again");
                }
                false
            }
            Answer::Late(error) | Answer::Away(error)
                if now.duration_since(began) >= long && self.settings.concurrency >= FEW =>
            {
                if self.queue.destinations.late(entry) {
                    tracing::warn!(to, error, "a destination gives no answer: its messages wait, and others pass them");
                }
                true
            }
            _ => false,
        }
    }
}

impl Queue {
    /// Takes the next message to publish, and sets aside those in front of it whose destination hangs. `doubtful` and
    /// `aside` say whether there is a place for one of which an earlier attempt got no answer, and for one that was set aside.
    pub(super) fn next_to_publish(&mut self, doubtful: bool, aside: bool) -> Option<Entry> {
        loop {
            if aside && let Some(entry) = self.destinations.next_in_turn() {
                return Some(entry);
            }
            match self.next(doubtful) {
                Some(entry) if self.sets_aside(&entry) => self.set_aside(entry),
                Some(entry) => return Some(entry),
                None => return self.destinations.next_to_go_on(),
            }
        }
    }

    /// Returns whether a message has to be set aside, because its destination hangs. If too many were, it is published as
    /// others are.
    pub(super) fn sets_aside(&self, entry: &Entry) -> bool {
        self.destinations.hangs(entry.message.to()) && self.destinations.has_room(self.room)
    }

    /// Lets a message that is under way wait, because its destination hangs. It stays in front of its key. Messages behind
    /// it are forgotten, and read again later.
    pub(super) fn set_aside(&mut self, entry: Entry) {
        if let Some(key) = entry.key()
            && let Some(of_key) = self.keys.get_mut(key)
        {
            of_key.is_aside = true;
            for later in std::mem::take(&mut of_key.waiting) {
                of_key.leave(later.id);
                self.known.remove(later.id);
                self.behind -= 1;
            }
        }
        self.destinations.push(entry);
    }
}

#[cfg(test)]
mod tests;
