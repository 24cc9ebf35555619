//! The records of one partition that were received and not handed out.

use std::collections::{HashMap, HashSet, VecDeque};

use idem_core::Delivery;

use crate::ticket::Ticket;

/// What waits to be handed out, first in, first out; but of each ordering key one at a time.
///
/// A record whose key has one with somebody waits here, where it costs memory only. So a key that is hot or fails keeps
/// neither the others nor their room in the worker.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// What can be handed out now: those in no order, and of each key the first.
    ready: VecDeque<Waiting>,
    /// What waits behind another one of its key.
    behind: HashMap<u64, VecDeque<Waiting>>,
    /// The keys of which one is ready or with somebody.
    taken: HashSet<u64>,
    len: usize,
    bytes: usize,
}

type Waiting = (Ticket, Delivery);

impl Buffer {
    pub(crate) fn push(&mut self, ticket: Ticket, delivery: Delivery) {
        self.len += 1;
        self.bytes += delivery.payload().len();
        match ticket.key {
            Some(key) if !self.taken.insert(key) => self.behind.entry(key).or_default().push_back((ticket, delivery)),
            _ => self.ready.push_back((ticket, delivery)),
        }
    }

    /// The next one that can be handed out. Its key is taken until it is [`free`](Self::free).
    pub(crate) fn pop(&mut self) -> Option<Waiting> {
        let (ticket, delivery) = self.ready.pop_front()?;
        self.len -= 1;
        self.bytes -= delivery.payload().len();
        Some((ticket, delivery))
    }

    /// What was handed out of this key is finished: the next one can be.
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

    /// Of payload.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets what waits.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}
