//! The phases of a message in one process.

use std::fmt;

/// The phase of a message in which a process dies. Those of a call, of local messages and of a relay are those of trials that
/// have one.
///
/// ```
/// # use idem_test::harness::Phase;
/// assert_eq!(Phase::InHandler.to_string(), "in the handler");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Phase {
    /// The message is stored with the key of its external call, acked, and fetched for the call.
    BeforeCall,
    /// The message is fetched, and `called_at` is written; nothing is sent.
    CallWritten,
    /// The call waits: its request may be sent, and the answer was not read.
    InCall,
    /// The call has returned; its answer is not kept.
    AnswerRead,
    /// The answer is written to the row of the message.
    AnswerKept,
    /// The claim is made; with an inbox, the message is stored, acked and fetched. Behind a call, the message is completed from
    /// here on.
    BeforeHandler,
    /// The handler runs.
    InHandler,
    /// A commit runs, after the handler has begun.
    InCommit,
    /// A handler of local messages runs.
    InLocalHandler,
    /// Everything else after the handler has begun: the ack, a rollback, what follows a failure, and the start of local
    /// messages.
    After,
    /// The relay has read a message, and has not begun to publish it.
    BeforePublish,
    /// The sink waits for the broker: it may have the message, and the confirm was not read.
    InPublish,
    /// The broker has confirmed the message; it is not deleted.
    ConfirmRead,
    /// The relay deletes the message.
    InDelete,
    /// The relay has deleted the message.
    Deleted,
}

impl Phase {
    /// Every phase, in the order in which a message reaches them.
    pub const ALL: &[Self] = &[
        Self::BeforeCall,
        Self::CallWritten,
        Self::InCall,
        Self::AnswerRead,
        Self::AnswerKept,
        Self::BeforeHandler,
        Self::InHandler,
        Self::InCommit,
        Self::InLocalHandler,
        Self::After,
        Self::BeforePublish,
        Self::InPublish,
        Self::ConfirmRead,
        Self::InDelete,
        Self::Deleted,
    ];
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::BeforeCall => "as the call is prepared",
            Self::CallWritten => "with `called_at` written",
            Self::InCall => "in the call",
            Self::AnswerRead => "with the answer read",
            Self::AnswerKept => "as the answer is kept",
            Self::BeforeHandler => "before the handler",
            Self::InHandler => "in the handler",
            Self::InCommit => "in the commit",
            Self::InLocalHandler => "in the local handler",
            Self::After => "afterwards",
            Self::BeforePublish => "before the publish",
            Self::InPublish => "in the publish",
            Self::ConfirmRead => "with the confirm read",
            Self::InDelete => "in the delete",
            Self::Deleted => "with the message deleted",
        })
    }
}
