//! Broken rules of a relay. The search must find a violation for each.

crate::defect::defects! {
    DeleteBeforeConfirm: "a message is deleted before its confirm" => NothingLost,
    ReturnedIsConfirmed: "a message that the broker returns counts as confirmed" => NothingLost,
    DeleteWithoutToken: "a delete does not check the token of the lease" => DeletesFenced,
    Cursor: "a relay reads behind the last id, not all that is left" => Progress,
    StagedInOwnTransaction: "a message is staged in a transaction of its own" => OnlyCommittedLeaves,
    StagedBeforeTheLock: "a message is staged before its writer has the lock of its key" => KeysInOrder,
    LaterOfKeyOvertakes: "a message does not wait for the one before it of its key" => KeysInOrder,
    RefusedKeyNotBlocked: "a refused message does not block its key" => KeysInOrder,
    AwayCostsAttempt: "a broker that is away costs an attempt" => InnocentsLive,
}
