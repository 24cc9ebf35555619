//! State that a delivery keeps from one try to the next.

use std::time::Duration;

use crate::Reason;
use crate::store::{RowResult, Ticket};

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
    /// The transaction that its handler has committed, with a claim: until the failure is recorded, the message counts as
    /// processed.
    pub(crate) left_by: Option<Box<Ticket>>,
}

impl Charge {
    /// A failure of which nothing is in the database.
    pub(crate) fn new(attempts: u32, next: Result<Duration, Reason>, error: String) -> Self {
        Self { attempts, next, error, left_by: None }
    }

    /// The failure of a message whose handler ran COMMIT in this transaction.
    pub(crate) fn committed(attempts: u32, left_by: Box<Ticket>) -> Self {
        let error = "the handler ran COMMIT, so some of its writes may be committed: return Ok(()), and idem commits";
        Self { left_by: Some(left_by), ..Self::new(attempts, Err(Reason::Committed), error.to_owned()) }
    }

    /// The result of an inbox row.
    pub(crate) fn result(&self) -> RowResult {
        RowResult::Failed { next: self.next, error: self.error.clone() }
    }
}

impl From<Option<KeyTicket>> for Carried {
    fn from(order: Option<KeyTicket>) -> Self {
        Self { order, ..Self::default() }
    }
}
