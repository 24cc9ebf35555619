//! What a try of a delivery comes to.

use crate::store::{Identity, StoreError};
use crate::{BoxError, Delivery, Outcome};

use super::key_queue::Place;

/// A delivery that can run, with its place among those of its ordering key, of which it is the first.
pub(crate) type Arrival<A> = (Delivery, A, Option<Place>);

/// What one try of a delivery came to.
pub(crate) enum Progress {
    /// The database has answered.
    Done(Outcome),
    /// It has, for a delivery of a lane, and the message is in the inbox, or may be: its lane waits for it.
    InRow(Outcome, Box<Identity>),
    /// It has not; the delivery is kept unsettled and tried again.
    Hold(HoldReason),
    /// It refuses what is written for this message, and works for others. Its handler has run and failed, or has not.
    Refused { error: BoxError, ran: bool },
    /// The codec has to prepare first; the delivery is kept unsettled, out of its lane.
    Unprepared,
    /// The run was cut off by the end of the worker.
    Stopped,
}

/// Why a delivery is kept unsettled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HoldReason {
    /// Another transaction has the claim.
    Busy,
    /// The database refuses what is written for it, and works for others.
    Refused,
    /// There was no answer to a statement of idem's own.
    Lost,
    /// The database cannot be used.
    Outage,
    /// The connection was lost under the handler, or COMMIT was not answered.
    Broke,
    /// It is unfit, and consumption is paused because too many were.
    Unfit,
    /// Nothing is in the way any more.
    Again,
}

impl From<&StoreError> for HoldReason {
    fn from(fault: &StoreError) -> Self {
        match fault {
            StoreError::LockTimeout | StoreError::Serialization(_) => Self::Busy,
            StoreError::Message(_) => Self::Refused,
            StoreError::ConnectionLost(_) => Self::Lost,
            StoreError::Unavailable(_) => Self::Outage,
        }
    }
}
