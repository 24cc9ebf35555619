//! The records of one partition that were received but not handed out.

use std::collections::{HashMap, HashSet, VecDeque};

use idem_core::Delivery;

use crate::partition::Receipt;

/// The records that wait to be handed out: first in, first out, but only one at a time for each ordering key.
///
/// A record waits here, where it costs only memory, while another record of its key is handed out. A hot or failing key
/// therefore neither blocks the other keys nor uses up their room in the worker.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The records that can be handed out now: those without a key, and the first of each key.
    ready: VecDeque<Waiting>,
    /// The records that wait behind another record of their key.
    behind: HashMap<u64, VecDeque<Waiting>>,
    /// The keys with a record that is ready or handed out.
    taken: HashSet<u64>,
    len: usize,
    bytes: usize,
}

type Waiting = (Receipt, Delivery);

impl Buffer {
    pub(crate) fn push(&mut self, receipt: Receipt, delivery: Delivery) {
        self.len += 1;
        self.bytes += delivery.payload().len();
        match receipt.key {
            Some(key) if !self.taken.insert(key) => self.behind.entry(key).or_default().push_back((receipt, delivery)),
            _ => self.ready.push_back((receipt, delivery)),
        }
    }

    /// Returns the next record that can be handed out. Its key stays taken until [`free`](Self::free) is called.
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let (receipt, delivery) = self.ready.pop_front()?;
        self.len -= 1;
        self.bytes -= delivery.payload().len();
        Some((receipt, delivery))
    }

    /// Releases a key whose handed-out record is finished, so that its next record can be handed out.
    pub(crate) fn free(&mut self, key: u64) {
        let Some(behind) = self.behind.get_mut(&key) else {
            self.taken.remove(&key);
            return;
        };
        self.ready.extend(behind.pop_front());
        if behind.is_empty() {
            self.behind.remove(&key);
        }
    }

    pub(crate) fn is_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The payload bytes of the waiting records.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops all waiting records.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
