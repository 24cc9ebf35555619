//! The properties that every state must have, in all parts of the model.

use std::fmt::{Display, Formatter, Result};

/// Something that must hold in every state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Property {
    /// The broker gets an ack only after the commit of an effect or a row.
    AckAfterCommit,
    /// A message that the database has taken over stays there until its effect is committed.
    NothingLost,
    /// No effect is committed twice.
    NothingTwice,
    /// A message whose handler does no harm is never dead because a process or a connection ended.
    InnocentsLive,
    /// No row is charged with the crash of a message from which it was to be isolated.
    Isolated,
    /// A message that ends its process does so at most five times, once for each further copy.
    KillersEnd,
    /// A message that breaks its connection is given up.
    BreakersEnd,
    /// A row has no more starts than it has runs without a result.
    StartsCountedOnce,
    /// A row has no more attempts than its handler has failed.
    AttemptsCountedOnce,
    /// A dated claim is that of a processed message, an undated one that of a message with a row.
    ClaimsTrue,
    /// A message whose handler ran COMMIT and did not return is dead, since half of its effects may be there.
    HalvesDead,
    /// A message that an operator has discarded is not written again by those who had it before.
    DiscardsStay,
    /// A staged message leaves only if its transaction was committed.
    OnlyCommittedLeaves,
    /// While a process waits for a lock, other work starts for at least half of the time.
    OthersStart,
    /// Messages of one key are handled in order; those that are staged first reach the broker in order.
    KeysInOrder,
    /// A relay deletes only while it holds the lease.
    DeletesFenced,
    /// The provider charges once.
    ChargedOnce,
    /// Once its answer is kept, a call is not repeated.
    AnswersKept,
    /// A state in which nothing can happen is one in which nothing is left to be done.
    Progress,
}

impl Display for Property {
    fn fmt(&self, out: &mut Formatter<'_>) -> Result {
        out.write_str(match self {
            Self::AckAfterCommit => "acked before the commit",
            Self::NothingLost => "lost",
            Self::NothingTwice => "effect twice",
            Self::InnocentsLive => "innocent dead",
            Self::Isolated => "charged for another",
            Self::KillersEnd => "kills too often",
            Self::BreakersEnd => "breaks too often",
            Self::StartsCountedOnce => "start counted twice",
            Self::AttemptsCountedOnce => "attempt counted twice",
            Self::ClaimsTrue => "claim is untrue",
            Self::HalvesDead => "half done, but not dead",
            Self::DiscardsStay => "discarded, but there again",
            Self::OnlyCommittedLeaves => "rolled back, but published",
            Self::OthersStart => "others kept waiting",
            Self::KeysInOrder => "out of order",
            Self::DeletesFenced => "deleted by another relay",
            Self::ChargedOnce => "charged twice",
            Self::AnswersKept => "called again with an answer",
            Self::Progress => "stuck",
        })
    }
}
