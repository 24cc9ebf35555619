//! Broken rules of a relay. The search must find a violation for each.

use crate::property::Property;

/// One rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    DeleteBeforeConfirm,
    ReturnedIsConfirmed,
    DeleteWithoutToken,
    Cursor,
    StagedInOwnTransaction,
    StagedBeforeTheLock,
    LaterOfKeyOvertakes,
    RefusedKeyNotBlocked,
    AwayIsCharged,
}

impl Defect {
    /// All of them, each with what is done instead of the rule, and the property that it violates.
    pub(crate) const ALL: &'static [(Self, &'static str, Property)] = &[
        (Self::DeleteBeforeConfirm, "a message is deleted before its confirm", Property::NothingLost),
        (Self::ReturnedIsConfirmed, "a message that the broker returns counts as confirmed", Property::NothingLost),
        (Self::DeleteWithoutToken, "a delete does not check the token of the lease", Property::DeletesFenced),
        (Self::Cursor, "a relay reads behind the last id, not all that is left", Property::Progress),
        (
            Self::StagedInOwnTransaction,
            "a message is staged in a transaction of its own",
            Property::OnlyCommittedLeaves,
        ),
        (
            Self::StagedBeforeTheLock,
            "a message is staged before its writer has the lock of its key",
            Property::KeysInOrder,
        ),
        (Self::LaterOfKeyOvertakes, "a message does not wait for the one before it of its key", Property::KeysInOrder),
        (Self::RefusedKeyNotBlocked, "a refused message does not block its key", Property::KeysInOrder),
        (Self::AwayIsCharged, "a broker that is away is charged to the message", Property::InnocentsLive),
    ];
}
