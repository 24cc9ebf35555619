//! What the database takes over, and what becomes of it.

use std::borrow::Cow;

use crate::execute::Failure;
use crate::store::Identity;
use crate::{Delivery, Reason, telemetry};

use super::classify::Classified;

/// What one handler keeps of a message in one commit: its claim and its row.
pub(crate) struct Entry<'a> {
    pub(crate) identity: Identity,
    pub(crate) delivery: &'a Delivery,
    /// The state of the row.
    pub(crate) failure: Cow<'a, Failure>,
}

impl<'a> Entry<'a> {
    /// A message that has not failed. Its row is due now.
    pub(crate) fn due(identity: Identity, delivery: &'a Delivery) -> Self {
        Self { identity, delivery, failure: Cow::Owned(Failure::none()) }
    }

    /// A message with this failure.
    pub(crate) fn failed(identity: Identity, delivery: &'a Delivery, failure: &'a Failure) -> Self {
        Self { identity, delivery, failure: Cow::Borrowed(failure) }
    }
}

/// What became of a message in a transaction.
#[derive(Debug)]
pub(crate) struct Taken {
    pub(crate) classified: Classified,
    /// The row that was written for it.
    pub(crate) row: Option<i64>,
}

impl Taken {
    /// Logs that the message, which has failed this often, is dead by its claim alone, after that was committed.
    pub(crate) fn tell(&self, attempts: u32) {
        match &self.classified {
            Classified::TooOld(error) => telemetry::tell(self.row, attempts, Err(Reason::TooOld), error),
            Classified::Conflict(error) => telemetry::tell(self.row, attempts, Err(Reason::Conflict), error),
            Classified::New | Classified::Duplicate(_) | Classified::Gone => {}
        }
    }
}
