//! Broken rules of batches. The search must find a violation for each.

use crate::property::Property;

/// One rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    CopyAckedBeforeItsFirst,
    CommitNotRefused,
    StagesBesideOthers,
    WritesOutsideTransactions,
    NoGuard,
    BatchCharges,
}

impl Defect {
    /// All of them, each with what is done instead of the rule, and the property that it violates.
    pub(crate) const ALL: &'static [(Self, &'static str, Property)] = &[
        (Self::CopyAckedBeforeItsFirst, "a copy in a batch is acked before its first", Property::AckAfterCommit),
        (Self::CommitNotRefused, "the COMMIT of a handler in a batch is not refused", Property::AckAfterCommit),
        (Self::StagesBesideOthers, "natural handlers that stage messages share a transaction", Property::HalvesDead),
        (Self::WritesOutsideTransactions, "a handler can write outside of a transaction", Property::NothingTwice),
        (Self::NoGuard, "no guard checks the transaction of a batch", Property::AckAfterCommit),
        (Self::BatchCharges, "a batch charges each of its messages", Property::AttemptsCountedOnce),
    ];
}
