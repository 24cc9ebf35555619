//! The messages that need not be read again.

use std::collections::{BTreeSet, HashMap};

/// The ids of messages that need not be read again, with their lanes, and with the sizes of the payloads that are kept.
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

    /// Records that the payload of a message is not kept any more.
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

    pub(super) fn ids(&self) -> Vec<i64> {
        self.ids.keys().copied().collect()
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
