//! A delivery, and the state that it keeps from one try to the next.

use crate::run::Failure;
use crate::runtime::{KeyTicket, KeyTickets, Refused};
use crate::{Delivery, Key};

/// A delivery, with the state of earlier tries. In the queue of a lane, it is the first in the queues in which it has a place.
pub(crate) struct Arrival<A> {
    /// It is large and passes through many hands, so it is on the heap.
    pub(crate) delivery: Box<Delivery>,
    pub(crate) acker: A,
    pub(crate) carried: Carried,
}

/// State that a delivery keeps from one try to the next, while it waits or runs. Dropping it lets other deliveries
/// continue.
#[derive(Default)]
pub(crate) struct Carried {
    /// Its place in the queue of its ordering key.
    pub(crate) order: Option<KeyTicket>,
    /// Its places in the queues of the keys of its message, in claim order: one for each handler.
    pub(crate) keys: KeyTickets,
    /// The key of its message, if the last try has found it and one handler takes it: for the observer.
    pub(crate) key: Option<Key>,
    /// A failure that could not be recorded yet. Only the write is retried, never the run.
    pub(crate) charge: Option<Box<Failure>>,
    /// Whether it was parked before, so it is processed by itself.
    pub(crate) was_parked: bool,
    /// How many tries in a row were in vain.
    pub(crate) tries: usize,
    /// Counts it as refused by the database.
    pub(crate) refused: Option<Refused>,
}
