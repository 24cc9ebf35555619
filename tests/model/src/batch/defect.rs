//! Broken rules of batches. The search must find a violation for each.

crate::defect::defects! {
    CopyAckedBeforeItsFirst: "a copy in a batch is acked before its first" => AckAfterCommit,
    CommitNotRefused: "the COMMIT of a handler in a batch is not refused" => AckAfterCommit,
    StagesBesideOthers: "natural handlers that stage messages share a transaction" => HalvesDead,
    WritesOutsideTransactions: "a handler can write outside of a transaction" => NothingTwice,
    NoGuard: "no guard checks the transaction of a batch" => AckAfterCommit,
    BatchRecordsAttempts: "a batch records an attempt of each of its messages" => AttemptsCountedOnce,
}
