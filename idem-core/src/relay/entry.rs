//! A message that was read.

use std::sync::Arc;

use tokio::time::Instant;

use crate::Key;
use crate::outbox::StagedMessage;
use crate::store::RowRef;

/// A message that was read.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) lane: u8,
    pub(super) id: i64,
    pub(super) message: Arc<StagedMessage>,
    /// When it was staged, by the clock of this process.
    pub(super) staged: Option<Instant>,
    /// How often it was published without an answer, in a row.
    pub(super) tries: u32,
    /// It takes one of the places for messages that may get no answer.
    pub(super) doubtful: bool,
}

impl Entry {
    pub(super) fn key(&self) -> Option<&Key> {
        self.message.key()
    }

    pub(super) fn row(&self) -> RowRef {
        RowRef { lane: self.lane, id: self.id, message_id: self.message.id() }
    }
}
