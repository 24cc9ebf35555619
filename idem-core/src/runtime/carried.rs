//! State that a delivery keeps from one try to the next.

use std::time::Duration;

use crate::Reason;

use super::key_queue::KeyTicket;
use super::key_tickets::KeyTickets;
use super::refused::Refused;

/// State that a delivery keeps from one try to the next, while it waits or runs. Dropping it lets other deliveries
/// continue.
#[derive(Default)]
pub(crate) struct Carried {
    /// Its place in the queue of its ordering key.
    pub(crate) order: Option<KeyTicket>,
    /// Its places in the queues of the keys of its message, in claim order: one for each handler.
    pub(crate) keys: KeyTickets,
    /// A failure that could not be recorded yet. Only the write is retried, never the run.
    pub(crate) charge: Option<Box<Charge>>,
    /// Whether it was parked before, so it is processed by itself.
    pub(crate) was_parked: bool,
    /// How many tries in a row were in vain.
    pub(crate) tries: usize,
    /// Counts it as refused by the database.
    pub(crate) refused: Option<Refused>,
}

/// A failure, and the resulting state of its message.
#[derive(Debug)]
pub(crate) struct Charge {
    /// How often the message has failed, including this failure.
    pub(crate) attempts: u32,
    /// The delay after which it runs again, or the reason why it is dead.
    pub(crate) next: Result<Duration, Reason>,
    pub(crate) error: String,
}

impl From<Option<KeyTicket>> for Carried {
    fn from(order: Option<KeyTicket>) -> Self {
        Self { order, ..Self::default() }
    }
}
