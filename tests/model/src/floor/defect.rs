//! Broken rules of the floor. The search must find a violation for each.

use crate::property::Property;

/// One rule that is broken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Defect {
    RaisedByTheMark,
    OldSnapshot,
    OpenForgotten,
    FloorFromBehind,
    EndedNotSeen,
    EndedReadKept,
    IdBeforeNumber,
    CutReadCoversAll,
    ReachedByAnyMark,
    FailureKeepsFloor,
}

impl Defect {
    /// All of them, each with what is done instead of the rule, and the property that it violates.
    pub(crate) const ALL: &'static [(Self, &'static str, Property)] = &[
        (Self::RaisedByTheMark, "the floor rises when a mark is drawn, before the next read", Property::NothingLost),
        (Self::OldSnapshot, "the floor rises by a snapshot that does not reach the mark", Property::NothingLost),
        (Self::OpenForgotten, "the floor rises over open transactions, and none is remembered", Property::NothingLost),
        (
            Self::FloorFromBehind,
            "an open transaction is remembered with the floor that rises over it",
            Property::NothingLost,
        ),
        (Self::EndedNotSeen, "nobody looks whether a remembered transaction has ended", Property::KeysInOrder),
        (Self::EndedReadKept, "what a read has found that shows the end is published first", Property::KeysInOrder),
        (Self::IdBeforeNumber, "a transaction draws the id of a message before its own number", Property::NothingLost),
        (Self::CutReadCoversAll, "the floor rises over what the limit of a read has cut", Property::NothingLost),
        (
            Self::ReachedByAnyMark,
            "behind the end of a remembered transaction, the floor rises to the newest mark at once",
            Property::NothingLost,
        ),
        (Self::FailureKeepsFloor, "the floor stays where it is when a server fails over", Property::NothingLost),
    ];
}
