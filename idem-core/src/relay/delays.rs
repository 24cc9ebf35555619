//! The messages that wait for their next attempt.

use std::collections::btree_map::OccupiedEntry;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use crate::Key;

/// A longer delay than this is divided: a message that is read before its time is delayed again.
const LONGEST: Duration = Duration::from_secs(60 * 60);
/// How many attempts without an answer count behind a hang: the delay after so many is a few seconds.
const CARRIED: u32 = 6;

/// A message that waits for its next attempt, and is read again then.
#[derive(Debug)]
pub(super) struct Delayed {
    pub(super) lane: u8,
    pub(super) key: Option<Key>,
}

/// The messages that wait for their next attempt. Nothing else is kept of them.
#[derive(Debug, Default)]
pub(super) struct Delays {
    /// Those that were refused, by the time of the attempt and their id.
    refused: BTreeMap<(Instant, i64), Delayed>,
    /// Those that got no answer. They are read again only when there is a place for them: otherwise they would take the
    /// room of all others.
    unanswered: BTreeMap<(Instant, i64), Delayed>,
    /// How many of these were woken since the last read, by lane. They are unread.
    woken: BTreeMap<u8, usize>,
    /// How often messages were published without an answer, in a row.
    tries: HashMap<i64, u32>,
}

impl Delays {
    /// Delays a message that was refused.
    pub(super) fn insert(&mut self, id: i64, delayed: Delayed, now: Instant, delay: Duration) {
        self.refused.insert((now + delay.min(LONGEST), id), delayed);
    }

    /// Delays a message that got no answer, so many times in a row at least: while it was aside, nothing was recorded here. Of
    /// those no more than [`CARRIED`] count, as they say more about its destination, which answers again.
    pub(super) fn insert_unanswered(&mut self, id: i64, delayed: Delayed, tries: u32, until: Instant) {
        let known = self.tries.entry(id).or_default();
        *known = known.saturating_add(1).max(tries.min(CARRIED));
        self.unanswered.insert((until, id), delayed);
    }

    pub(super) fn remove(&mut self, id: i64) {
        self.refused.retain(|(_, other), _| *other != id);
        self.unanswered.retain(|(_, other), _| *other != id);
    }

    /// How often a message was published without an answer, in a row.
    pub(super) fn tries(&self, id: i64) -> u32 {
        self.tries.get(&id).copied().unwrap_or(0)
    }

    /// Records that a message got an answer, or is not here any more.
    pub(super) fn forget_tries(&mut self, id: i64) {
        self.tries.remove(&id);
    }

    /// Records that what was woken may have been read.
    pub(super) fn read(&mut self) {
        self.woken.clear();
    }

    /// Returns the lanes of what was woken and is not read, with the number of these messages.
    pub(super) fn woken(&self) -> &BTreeMap<u8, usize> {
        &self.woken
    }

    fn may_wake(&self, places: usize) -> bool {
        self.woken.values().sum::<usize>() < places
    }

    /// Takes the messages whose time has come; of those without an answer as many as there are places for.
    pub(super) fn wake(&mut self, now: Instant, places: usize) -> Vec<(i64, Delayed)> {
        let is_due = |first: &OccupiedEntry<'_, (Instant, i64), Delayed>| first.key().0 <= now;
        let mut woken = Vec::new();
        while let Some(first) = self.refused.first_entry().filter(is_due) {
            woken.push(first.remove_entry());
        }
        while self.may_wake(places)
            && let Some(first) = self.unanswered.first_entry().filter(is_due)
        {
            *self.woken.entry(first.get().lane).or_default() += 1;
            woken.push(first.remove_entry());
        }
        woken.into_iter().map(|((_, id), delayed)| (id, delayed)).collect()
    }

    /// When the time of the next message comes.
    pub(super) fn next_due(&self, places: usize) -> Option<Instant> {
        let unanswered = self.unanswered.first_key_value().filter(|_| self.may_wake(places));
        let firsts = self.refused.first_key_value().into_iter().chain(unanswered);
        firsts.map(|((until, _), _)| *until).min()
    }

    /// Takes the ids of messages of these lanes.
    pub(super) fn remove_lanes(&mut self, lanes: &BTreeSet<u8>) -> Vec<i64> {
        let mut gone = Vec::new();
        for delayed in [&mut self.refused, &mut self.unanswered] {
            delayed.retain(|(_, id), delayed| {
                let goes = lanes.contains(&delayed.lane);
                gone.extend(goes.then_some(*id));
                !goes
            });
        }
        gone.iter().for_each(|id| self.forget_tries(*id));
        self.woken.retain(|lane, _| !lanes.contains(lane));
        gone
    }

    pub(super) fn len(&self) -> usize {
        self.refused.len() + self.unanswered.len()
    }
}
