//! Broken rules of the floor. The search must find a violation for each.

crate::defect::defects! {
    RaisedByTheMark: "the floor rises when a mark is drawn, before the next read" => NothingLost,
    OldSnapshot: "the floor rises by a snapshot that does not reach the mark" => NothingLost,
    OpenForgotten: "the floor rises over open transactions, and none is remembered" => NothingLost,
    FloorFromBehind: "an open transaction is remembered with the floor that rises over it" => NothingLost,
    EndedNotSeen: "nobody looks whether a remembered transaction has ended" => KeysInOrder,
    EndedReadKept: "what a read has found that shows the end is published first" => KeysInOrder,
    IdBeforeNumber: "a transaction draws the id of a message before its own number" => NothingLost,
    CutReadCoversAll: "the floor rises over what the limit of a read has cut" => NothingLost,
    ReachedByAnyMark:
        "behind the end of a remembered transaction, the floor rises to the newest mark at once" => NothingLost,
    FailureKeepsFloor: "the floor stays where it is when a server fails over" => NothingLost,
}
