//! The keys that a read leaves out, and those for which it begins lower.

use std::collections::{BTreeMap, BTreeSet};

use crate::Key;
use crate::store::LaneLook;

use super::level::Covered;
use super::queue::Queue;
use super::room::Here;

/// The request of a read.
#[derive(Debug, Default)]
pub(super) struct Asks {
    /// The keys whose messages it leaves out, and their lanes. In these it visits what it leaves out.
    pub(super) keys: Vec<Key>,
    pub(super) lanes: BTreeSet<u8>,
    /// The lanes that have unread messages of other keys: from where on, and how many of them may be kept.
    pub(super) behind: BTreeMap<u8, LaneLook>,
}

impl Queue {
    /// Returns what the read that begins now asks for. `few`: it is to bring messages that were woken, and no others.
    /// `is_paused`: a read that is for no key in particular is not wanted in the lanes of keys that are left out. If neither,
    /// reads of a lane for keys and reads for all others take turns, so that neither can hinder the other. Nor can a key
    /// with a backlog in front of another one's: if a read has brought none of a key, the next one is for such keys alone.
    pub(super) fn ask(&mut self, few: bool, is_paused: bool) -> Asks {
        let (mut asks, here) = (Asks::default(), self.here());
        let missed = self.keys.values().filter(|of_key| of_key.is_missed()).map(|of_key| of_key.lane);
        let missed: BTreeSet<u8> = missed.collect();
        for (key, of_key) in &mut self.keys {
            if of_key.unread.is_none() {
                continue;
            }
            let (lane, most) = (of_key.lane, of_key.most(here));
            let is_turn_of_keys = few || is_paused || !self.others.contains(&lane);
            let is_its_turn = is_turn_of_keys && (few || of_key.is_missed() || !missed.contains(&lane));
            let asked = of_key.reads_on() && is_its_turn && !(few && of_key.under_way);
            let room = most.saturating_sub(of_key.waiting.len()).max(1);
            let Some(unread) = &mut of_key.unread else { continue };
            unread.asked = asked;
            if asked {
                unread.kept = most;
                let (floor, room) = (unread.from, u32::try_from(room).unwrap_or(u32::MAX));
                let look = asks.behind.entry(lane).or_insert(LaneLook { lane, floor, limit: 0 });
                (look.floor, look.limit) = (floor.min(look.floor), look.limit.saturating_add(room));
            } else {
                asks.keys.push(key.clone());
                asks.lanes.insert(lane);
            }
        }
        asks
    }

    /// Records what a read has covered, before its rows are added.
    pub(super) fn covered(&mut self, covered: &BTreeMap<u8, Covered>) {
        self.others.retain(|lane| !covered.contains_key(lane));
        self.keys.retain(|_, of_key| {
            if let Some(covered) = covered.get(&of_key.lane)
                && let Some(unread) = of_key.unread.take()
            {
                if unread.asked && covered.to.is_some() {
                    self.others.insert(of_key.lane);
                }
                of_key.unread = unread.after(covered);
            }
            !of_key.is_done()
        });
    }

    /// Returns whether unread messages of a key in these lanes can be read.
    pub(super) fn reads_on(&self, lanes: &BTreeMap<u8, Covered>) -> bool {
        self.keys.values().any(|of_key| of_key.reads_on() && lanes.contains_key(&of_key.lane))
    }

    /// Returns whether unread messages of a key can be read that could not before, once.
    pub(super) fn goes_on(&mut self) -> bool {
        std::mem::take(&mut self.goes_on)
    }

    pub(super) fn here(&self) -> Here {
        Here { room: self.room, behind: self.behind, bytes: self.bytes() }
    }
}

#[cfg(test)]
mod tests;
