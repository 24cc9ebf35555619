//! Broken rules of key-value stores. The search must find a violation for each.

crate::defect::defects! {
    DoneAtTheStart: "the record is done before the handler has run, as with SET NX" => AckAfterCommit,
    AckedBeforeDone: "a delivery is acked before the completion" => AckAfterCommit,
    EffectBeforeRecord: "the writes are applied in a step before the completion" => NothingTwice,
    AnyTokenCompletes: "a completion looks neither at the token nor at the state" => NothingTwice,
    AnyTokenBuries: "a message is buried whoever has the lease" => ClaimsTrue,
    HalfRunsAgain: "a message whose writes are half applied is started again" => NothingTwice,
    HalfIsDone: "a message whose writes are half applied counts as done" => HalvesDead,
    LeaseStays: "the lease of a process that has ended does not end" => Progress,
    RecordEndsWithLease: "the record ends with its lease" => KillersEnd,
    EachAnswerIsAStart: "a step that is repeated counts another start" => InnocentsLive,
    ReleaseKeepsStart: "a release does not take the start back" => InnocentsLive,
}
