//! The messages that need not be read again.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::store::LaneLook;

/// The ids of messages that need not be read again, with their lanes, and with the sizes of those that are kept.
#[derive(Debug, Default)]
pub(super) struct Known {
    ids: HashMap<i64, (u8, usize)>,
    bytes: usize,
}

impl Known {
    pub(super) fn contains(&self, id: i64) -> bool {
        self.ids.contains_key(&id)
    }

    pub(super) fn insert(&mut self, id: i64, lane: u8, size: usize) {
        self.bytes += size;
        self.ids.insert(id, (lane, size));
    }

    /// Records that only the id of a message is kept any more.
    pub(super) fn lighten(&mut self, id: i64) {
        if let Some((_, size)) = self.ids.get_mut(&id) {
            self.bytes -= std::mem::take(size);
        }
    }

    pub(super) fn remove(&mut self, id: i64) {
        if let Some((_, size)) = self.ids.remove(&id) {
            self.bytes -= size;
        }
    }

    pub(super) fn remove_lanes(&mut self, lanes: &BTreeSet<u8>) {
        let gone: Vec<i64> = self.ids.iter().filter(|(_, (lane, _))| lanes.contains(lane)).map(|(id, _)| *id).collect();
        gone.into_iter().for_each(|id| self.remove(id));
    }

    /// Returns the ids that a read from these places would find.
    pub(super) fn ids(&self, looks: &[LaneLook]) -> Vec<i64> {
        let floors: BTreeMap<u8, i64> = looks.iter().map(|look| (look.lane, look.floor)).collect();
        let found = self.ids.iter().filter(|(id, (lane, _))| floors.get(lane).is_some_and(|floor| floor <= *id));
        found.map(|(id, _)| *id).collect()
    }

    pub(super) fn lanes(&self) -> BTreeSet<u8> {
        self.ids.values().map(|(lane, _)| *lane).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.ids.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_is_told_only_of_messages_that_it_could_find() {
        let mut known = Known::default();
        for (id, lane) in [(1, 0), (2, 0), (3, 0), (4, 1), (5, 2)] {
            known.insert(id, lane, 0);
        }
        let look = |lane, floor| LaneLook { lane, floor, limit: 1 };
        let mut ids = known.ids(&[look(0, 2), look(1, 5), look(2, 0)]);
        ids.sort_unstable();
        assert_eq!(ids, [2, 3, 5]);
    }
}
