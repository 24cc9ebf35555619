//! Broken rules. The search must find a violation for each.

use crate::property::Property;

/// One rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    AckBeforeCommit,
    AckOnUncommittedClaim,
    UnansweredCommitIsSuccess,
    NoGuard,
    ClaimInOwnTransaction,
    NoFingerprintCompared,
    FailureStoredWithoutClaim,
    DeadRowWithoutClaim,
    FateNotAsked,
    EarlyCommitWrittenAgain,
    UndatedClaimEndsItsTurn,
    RedeliveredRunDirectly,
    WindowCountsDuplicates,
    RowDeletedBeforeItsRun,
    RowDeletedAfterItsRun,
    RecordWithoutToken,
    UnansweredTakeForgotten,
    StartsNotCounted,
    OneStartIsOrdinary,
    SuspectBesideDirect,
    StartCountedAtReservation,
    RepeatedCountAdds,
    CountIgnoresRefund,
    JudgedAtTheEndOfItsLease,
    BreakChargesStart,
    BreaksNotCounted,
    PruneOfUndatedClaims,
    PruneBesideConflicts,
    CutoffAfterTheDelete,
    CutoffBeforeTheClaim,
    CutoffOfTheLast,
    CutoffByOwnRetention,
    DiscardDatesWithoutDelete,
    ConflictReplayedUnderItsKey,
}

impl Defect {
    /// All of them, each with what is done instead of the rule, and the property that it violates.
    pub(crate) const ALL: &'static [(Self, &'static str, Property)] = &[
        (Self::AckBeforeCommit, "a delivery is acked before its commit", Property::AckAfterCommit),
        (
            Self::AckOnUncommittedClaim,
            "a duplicate is acked on a claim that is not committed",
            Property::AckAfterCommit,
        ),
        (Self::UnansweredCommitIsSuccess, "a commit without an answer is a success", Property::AckAfterCommit),
        (Self::NoGuard, "no guard checks the transaction before the commit", Property::AckAfterCommit),
        (Self::ClaimInOwnTransaction, "the claim is committed before the handler runs", Property::AckAfterCommit),
        (Self::NoFingerprintCompared, "any message that finds a claim is a duplicate", Property::AckAfterCommit),
        (Self::FailureStoredWithoutClaim, "a failed message is stored without a claim", Property::NothingTwice),
        (
            Self::DeadRowWithoutClaim,
            "a message whose handler ran ROLLBACK is dead without a look at its claim",
            Property::NothingTwice,
        ),
        (Self::FateNotAsked, "the fate of a run that was cut off is not asked", Property::HalvesDead),
        (
            Self::EarlyCommitWrittenAgain,
            "the dead row of a handler's COMMIT is written again, whatever the claim says",
            Property::DiscardsStay,
        ),
        (Self::UndatedClaimEndsItsTurn, "in an order, an undated claim is a duplicate", Property::KeysInOrder),
        (Self::RedeliveredRunDirectly, "a redelivered message runs directly", Property::KillersEnd),
        (
            Self::WindowCountsDuplicates,
            "a log's new owner counts duplicates among those that it stores",
            Property::KillersEnd,
        ),
        (Self::RowDeletedBeforeItsRun, "a row is deleted and committed before it runs", Property::NothingLost),
        (Self::RowDeletedAfterItsRun, "a row is deleted after its run, in another transaction", Property::NothingTwice),
        (Self::RecordWithoutToken, "a failure is recorded without a check of the token", Property::AttemptsCountedOnce),
        (Self::UnansweredTakeForgotten, "a take without an answer is forgotten", Property::StartsCountedOnce),
        (Self::StartsNotCounted, "starts are not counted", Property::KillersEnd),
        (Self::OneStartIsOrdinary, "a row with one start is an ordinary row", Property::InnocentsLive),
        (
            Self::SuspectBesideDirect,
            "a suspect keeps out other rows only, from two starts on as well",
            Property::InnocentsLive,
        ),
        (Self::StartCountedAtReservation, "a suspect's start is counted when it is reserved", Property::InnocentsLive),
        (Self::RepeatedCountAdds, "the count of a start adds one when it is repeated", Property::StartsCountedOnce),
        (
            Self::CountIgnoresRefund,
            "the count of a start ignores that a former holder has given its own back since",
            Property::StartsCountedOnce,
        ),
        (Self::JudgedAtTheEndOfItsLease, "a row is judged as soon as its lease is over", Property::InnocentsLive),
        (Self::BreakChargesStart, "a lost connection does not give the start back", Property::InnocentsLive),
        (Self::BreaksNotCounted, "lost connections are not counted", Property::BreakersEnd),
        (Self::PruneOfUndatedClaims, "prune deletes undated claims", Property::NothingTwice),
        (Self::PruneBesideConflicts, "prune deletes a claim whose key has the row of a conflict", Property::ClaimsTrue),
        (Self::CutoffAfterTheDelete, "the pruning cutoff is written after the delete", Property::NothingTwice),
        (Self::CutoffBeforeTheClaim, "the pruning cutoff is read before the claim", Property::NothingTwice),
        (
            Self::CutoffOfTheLast,
            "the pruning cutoff is the date of the last claim deleted, not the highest",
            Property::NothingTwice,
        ),
        (
            Self::CutoffByOwnRetention,
            "only what is older than the worker's own retention is compared with the cutoff",
            Property::NothingTwice,
        ),
        (Self::DiscardDatesWithoutDelete, "a discard dates the claim although it deletes no row", Property::ClaimsTrue),
        (Self::ConflictReplayedUnderItsKey, "a conflict is replayed under its own key", Property::ClaimsTrue),
    ];
}
