//! A destination of which messages got no answer.

use std::collections::VecDeque;

use tokio::time::Instant;

use super::broker::wait;
use super::entry::{Entry, Place};

/// A destination hangs if so many more of its messages got no answer than were confirmed. Fewer may be messages that never
/// get one, or those of a part of the destination.
pub(super) const LATE: usize = 16;

/// When a destination hangs no more, at most so many of its messages are delayed: half of those for which the smallest relay
/// has room.
const DELAYED: usize = 500;

/// A destination of which messages got no answer.
#[derive(Debug, Default)]
pub(super) struct Destination {
    /// How many more messages got no answer than were confirmed.
    pub(super) late: usize,
    /// The messages that wait because it hangs, and were not tried.
    fresh: VecDeque<Entry>,
    /// Those that got no answer. They may never get one, so others go first.
    tried: VecDeque<Entry>,
    /// Whether it waits for its turn.
    in_turns: bool,
    /// The message with which it is tried at present.
    trying: Option<i64>,
    /// It is tried no sooner than at this time, and has given no answer so many times in a row.
    until: Option<Instant>,
    failures: u32,
    /// How many messages may go on, because it has confirmed others.
    pub(super) go_on: usize,
    /// How many of these are being published.
    pub(super) going: usize,
}

impl Destination {
    /// Returns one that hangs.
    pub(super) fn hanging() -> Self {
        Self { late: LATE, ..Self::default() }
    }

    pub(super) fn hangs(&self) -> bool {
        self.late >= LATE
    }

    /// Returns whether none of its messages is aside that waits, or with which it is tried.
    pub(super) fn is_idle(&self) -> bool {
        self.fresh.is_empty() && self.tried.is_empty() && self.trying.is_none()
    }

    /// Lets a message wait.
    pub(super) fn push(&mut self, entry: Entry) {
        if entry.tries > 0 { self.tried.push_back(entry) } else { self.fresh.push_back(entry) }
    }

    /// Returns when its turn comes, if it is to wait for one.
    pub(super) fn wait_for_turn(&mut self, now: Instant) -> Option<Instant> {
        if self.in_turns || self.trying.is_some() || self.is_idle() {
            return None;
        }
        self.in_turns = true;
        Some(self.until.map_or(now, |until| until.max(now)))
    }

    /// Takes the message with which it is tried, because its turn has come. Once it answers, those that were not tried go on
    /// without a turn, so its turn is for those that got no answer: their keys wait for them.
    pub(super) fn next_in_turn(&mut self) -> Option<Entry> {
        self.in_turns = false;
        let first = if self.answers() { self.tried.pop_front() } else { None };
        let entry = first.or_else(|| self.fresh.pop_front()).or_else(|| self.tried.pop_front())?;
        self.trying = Some(entry.id);
        Some(Entry { place: Place::Aside, ..entry })
    }

    /// Takes a message that may go on, and says whether one more may.
    pub(super) fn next_to_go_on(&mut self) -> Option<(Entry, bool)> {
        self.go_on = self.go_on.saturating_sub(1).min(self.fresh.len());
        let entry = self.fresh.pop_front()?;
        self.going += 1;
        Some((Entry { place: Place::GoesOn, ..entry }, self.go_on > 0))
    }

    /// Records that a message is not being published any more. Returns whether it was tried with this one.
    pub(super) fn ended(&mut self, entry: &Entry) -> bool {
        // It may be too low meanwhile: one that went on in an earlier hang is not counted in this one.
        self.going = self.going.saturating_sub(usize::from(entry.place == Place::GoesOn));
        self.trying.take_if(|trying| *trying == entry.id).is_some()
    }

    /// Records that it gave no answer to a message that was published at `began`.
    pub(super) fn failed(&mut self, began: Instant, now: Instant) {
        self.go_on = 0;
        // Of messages that failed together, the first one counts.
        if self.until.is_none_or(|until| until <= began) {
            self.until = Some(now + wait(self.failures));
            self.failures = self.failures.saturating_add(1);
        }
    }

    /// Records that it has confirmed a message: two more go on, as far as there are some. Returns whether none could before.
    pub(super) fn answered(&mut self) -> bool {
        (self.until, self.failures) = (None, 0);
        let before = self.go_on;
        // It stays in the ring until its turn there.
        self.go_on = (before + 2).min(self.fresh.len()).max(usize::from(before > 0));
        before == 0 && self.go_on > 0
    }

    /// Returns whether it has confirmed a message since it last gave no answer.
    fn answers(&self) -> bool {
        self.until.is_none()
    }

    /// Returns whether no message waits that was not tried, and few wait that were.
    pub(super) fn has_tried_all(&self) -> bool {
        self.fresh.is_empty() && self.tried.len() <= DELAYED
    }

    /// Returns the messages that got no answer.
    pub(super) fn into_tried(self) -> VecDeque<Entry> {
        self.tried
    }

    /// Forgets messages that wait.
    pub(super) fn retain(&mut self, mut stays: impl FnMut(&Entry) -> bool) {
        self.fresh.retain(&mut stays);
        self.tried.retain(stays);
    }
}
