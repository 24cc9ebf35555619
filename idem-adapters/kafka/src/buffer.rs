//! The records of one partition that were received and not handed out.

use std::collections::{HashMap, HashSet, VecDeque};

use idem_core::Delivery;

use crate::ticket::Ticket;

/// The records that wait to be handed out: first in, first out, but one at a time of each ordering key.
///
/// A record whose key has one with somebody waits here, where it costs memory only. So a key that is hot or fails keeps
/// neither the others nor their room in the worker.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    /// The records that can be handed out now: those without a key, and the first of each key.
    ready: VecDeque<Waiting>,
    /// The records that wait behind another one of their key.
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

    /// The record of this key that was handed out is finished: the next one may be handed out.
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
