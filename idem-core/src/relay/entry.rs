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
    pub(super) place: Place,
}

/// The kind of place in which a message is published.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Any,
    /// For messages of which an earlier attempt got no answer.
    Again,
    /// For a message that was set aside, because its destination hangs: it finds out whether that answers again.
    Aside,
    /// For messages that were set aside, and whose destination has confirmed others.
    GoesOn,
}

impl Entry {
    pub(super) fn key(&self) -> Option<&Key> {
        self.message.key()
    }

    pub(super) fn row(&self) -> RowRef {
        RowRef { lane: self.lane, id: self.id, message_id: self.message.id() }
    }

    /// Returns whether it was set aside when it was published.
    pub(super) fn was_aside(&self) -> bool {
        matches!(self.place, Place::Aside | Place::GoesOn)
    }

    /// Returns the bytes of its payload and its headers.
    pub(super) fn size(&self) -> usize {
        self.message.message().size()
    }
}
