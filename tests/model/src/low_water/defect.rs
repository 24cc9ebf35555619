//! Broken rules of the low-water mark. The search must find a violation for each.

crate::defect::defects! {
    RaisedByTheMark: "the low-water mark rises when a mark is drawn, before the next read" => NothingLost,
    OldSnapshot: "the low-water mark rises by a snapshot that does not reach the mark" => NothingLost,
    OpenForgotten: "the low-water mark rises over open transactions, and none is remembered" => NothingLost,
    LowWaterFromBehind: "an open transaction is remembered with the low-water mark that rises over it" => NothingLost,
    EndedNotSeen: "nobody looks whether a remembered transaction has ended" => KeysInOrder,
    EndedReadKept: "what a read has found that shows the end is published first" => KeysInOrder,
    IdBeforeNumber: "a transaction draws the id of a message before its own number" => NothingLost,
    CutReadCoversAll: "the low-water mark rises over what the limit of a read has cut" => NothingLost,
    ReachedByAnyMark:
        "behind the end of a remembered transaction, the low-water mark rises to the newest mark at once" => NothingLost,
    FailureKeepsLowWater: "the low-water mark stays where it is when a server fails over" => NothingLost,
}
