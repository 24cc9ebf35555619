//! The result of one try of a delivery, and the state that it keeps for the next one.

use crate::execute::Failure;
use crate::store::{HandlerId, Identity};
use crate::{BoxError, Delivery, Outcome};

use super::key_queue::KeyTicket;
use super::key_tickets::KeyTickets;
use super::persist::Refused;

/// A delivery that can run, with the state of earlier tries. It is the first in the queues in which it has a place.
/// The delivery is large and passes through many hands, so it is on the heap.
pub(crate) type Arrival<A> = (Box<Delivery>, A, Carried);

/// The outcome of a delivery for each of its handlers.
pub(crate) struct Shared {
    pub(crate) outcomes: Vec<(HandlerId, Outcome)>,
    /// Whether no handler had taken the message before.
    pub(crate) is_new: bool,
}

/// The result of one try of a delivery.
pub(crate) enum Progress {
    /// The database has answered.
    Done(Outcome),
    /// The database has answered for a delivery with an ordering key. The message is in the inbox, or may be, and the
    /// later deliveries of its ordering key wait for it.
    InRow(Outcome, Box<Identity>),
    /// The database has answered for each of several handlers.
    Shared(Shared),
    /// The database has not answered. The delivery is parked, and tried again.
    Hold(HoldReason),
    /// Another delivery of its key is in progress in this process. The delivery leaves its lane, and starts over when
    /// its place in the queue of the key is the first.
    Behind,
    /// The database refuses the writes for this message, and works for others.
    Refused(BoxError),
    /// Another process has the row now that the message comes from.
    Lost,
    /// The codec has to prepare first. The delivery is held unsettled, outside its lane.
    Unprepared,
    /// The end of the worker cancelled the run.
    Stopped,
}

/// Why a delivery is parked until it is tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldReason {
    /// Another transaction holds the claim, or that of a local message.
    Busy,
    /// One of idem's own statements was not answered.
    Lost,
    /// The connection was lost while the handler ran, or COMMIT was not answered.
    Broke,
    /// It has met no problem of its own: the next try can start at once, or at the end of an outage or of a pause of the
    /// worker.
    Again,
}

impl HoldReason {
    /// Whether it concerns all messages alike, as far as is known after this many holds in a row. If there was no answer
    /// once, the connection was lost; if there is none again, one message may be the one that takes too long.
    pub(crate) fn is_common(self, holds: usize) -> bool {
        self == Self::Again || (self == Self::Lost && holds == 0)
    }
}

/// State that a delivery keeps from one try to the next, while it waits or runs. Dropping it lets other deliveries
/// continue.
#[derive(Default)]
pub(crate) struct Carried {
    /// Its place in the queue of its ordering key.
    pub(crate) order: Option<KeyTicket>,
    /// Its places in the queues of the keys of its message, in claim order: one for each handler.
    pub(crate) keys: KeyTickets,
    /// A failure that could not be recorded yet. Only the write is retried, never the run.
    pub(crate) charge: Option<Box<Failure>>,
    /// Whether it was parked before, so it is processed by itself.
    pub(crate) was_parked: bool,
    /// How many tries in a row were in vain.
    pub(crate) tries: usize,
    /// Counts it as refused by the database.
    pub(crate) refused: Option<Refused>,
}
