//! The guard: a commit succeeds only if the transaction is still the one that made the claim.

use idem_core::Reason;
use idem_core::store::{CommitResult, InboxRows, RowKind, Transactions, TxnOutcome};

use super::stage::{Stage, committed};
use super::world::World;

/// Runs `abuse` between two effects in a handler's transaction and returns the commit result. The first effect is
/// `before`; the last one is `after`, and may fail.
async fn abused<W: World>(stage: &Stage<W>, key: &str, abuse: &str) -> CommitResult {
    let mut txn = stage.claimed(&stage.id(key)).await;
    stage.effect(&mut txn, "before").await;
    let _ = stage.execute(&mut txn, abuse).await;
    let _ = stage.execute(&mut txn, &stage.effect_sql("after")).await;
    stage.commit(txn).await
}

/// Whether this is the commit result after the handler ran COMMIT.
fn is_after_commit<W: World>(result: &CommitResult) -> bool {
    match result {
        CommitResult::CommittedEarly(_) => !W::FEATURES.refuses_commit,
        CommitResult::CommitRefused => W::FEATURES.refuses_commit,
        _ => false,
    }
}

/// ROLLBACK: neither the claim nor the earlier writes exist.
pub async fn a_rollback_by_the_handler_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "before").await;
    let _ = stage.execute(&mut txn, "ROLLBACK").await;
    let committed = stage.commit(txn).await;
    assert!(matches!(committed, CommitResult::RolledBack), "{committed:?}");
    assert_eq!((stage.effects("before").await, stage.existing_claim("a").await), (0, None));
    stage.process("a").await;
    assert_eq!(stage.effects("a").await, 1);
}

/// After a ROLLBACK nothing can be written: it would be autocommitted, and written again when the message runs again.
pub async fn nothing_is_written_behind_a_rollback<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let abuses = ["ROLLBACK", "ROLLBACK; BEGIN", "ROLLBACK; BEGIN TRANSACTION", "ROLLBACK; COMMIT"];
    for (key, abuse) in ["a", "b", "c", "d"].into_iter().zip(abuses) {
        let mut txn = stage.claimed(&stage.id(key)).await;
        let _ = stage.execute(&mut txn, abuse).await;
        let effect = stage.effect_sql(key);
        let written = stage.execute(&mut txn, &effect).await;
        let _ = stage.execute(&mut txn, "COMMIT").await;
        assert_eq!(stage.effects(key).await, 0, "{abuse}: {written:?}");
        let committed = stage.commit(txn).await;
        assert!(matches!(committed, CommitResult::RolledBack | CommitResult::Swallowed), "{abuse}: {committed:?}");
        assert_eq!((stage.effects(key).await, stage.existing_claim(key).await), (0, None), "{abuse}");
    }
    stage.process("after").await;
}

/// COMMIT: the claim and the earlier writes are committed. Or COMMIT is refused, and neither exists.
pub async fn a_commit_by_the_handler_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "before").await;
    let _ = stage.execute(&mut txn, "COMMIT").await;
    let committed = stage.commit(txn).await;
    assert!(is_after_commit::<W>(&committed), "{committed:?}");
    let stands = !W::FEATURES.refuses_commit;
    assert_eq!((stage.effects("before").await, stage.is_dated("a").await), (i64::from(stands), stands));
    stage.process("b").await;
}

/// ROLLBACK and BEGIN: this is another transaction, and its writes are not committed either. Where ROLLBACK is refused,
/// the error aborts our transaction, and the guard sees that one.
pub async fn a_rollback_and_begin_by_the_handler_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let committed = abused(&stage, "a", "ROLLBACK; BEGIN").await;
    assert!(matches!(committed, CommitResult::RolledBack | CommitResult::Swallowed), "{committed:?}");
    assert_eq!((stage.effects("before").await, stage.effects("after").await), (0, 0));
    assert_eq!(stage.existing_claim("a").await, None);
    stage.process("b").await;
}

/// COMMIT and BEGIN: the claim can be read, but this is another transaction.
pub async fn a_commit_and_begin_by_the_handler_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let committed = abused(&stage, "a", "COMMIT; BEGIN").await;
    assert!(is_after_commit::<W>(&committed), "{committed:?}");
    let stands = !W::FEATURES.refuses_commit;
    assert_eq!((stage.effects("before").await, stage.effects("after").await), (i64::from(stands), 0));
    assert_eq!(stage.is_dated("a").await, stands);
    stage.process("b").await;
}

/// A handler swallows an error: if the error aborted the transaction, COMMIT must not look like success.
pub async fn a_swallowed_error_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "before").await;
    assert!(stage.execute(&mut txn, "INSERT INTO there_is_no_such_table VALUES (1)").await.is_err());
    let committed = stage.commit(txn).await;
    if W::FEATURES.errors_abort {
        assert!(matches!(committed, CommitResult::Swallowed), "{committed:?}");
        assert_eq!((stage.effects("before").await, stage.existing_claim("a").await), (0, None));
    } else {
        assert!(matches!(committed, CommitResult::Done), "{committed:?}");
        assert_eq!((stage.effects("before").await, stage.is_dated("a").await), (1, true));
    }
    stage.process("b").await;
}

/// The start of a row is guarded as a claim is: after ROLLBACK the row exists and is still locked.
pub async fn a_rollback_by_the_handler_of_a_row_leaves_the_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    for abuse in ["ROLLBACK", "ROLLBACK; BEGIN"] {
        let mut txn = stage.started(&row).await;
        let _ = stage.execute(&mut txn, abuse).await;
        let committed = stage.commit(txn).await;
        assert!(matches!(committed, CommitResult::RolledBack), "{abuse}: {committed:?}");
        assert_eq!(stage.one_scheduled().await.locked_by, row.locked_by);
        assert!(stage.is_waiting("a").await);
    }
}

/// After COMMIT the row is gone and the message looks processed: the caller has to write the dead row. Where COMMIT is
/// refused, the row exists and is still locked.
pub async fn a_commit_by_the_handler_of_a_row_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (key, abuse) in [("a", "COMMIT"), ("b", "COMMIT; BEGIN")] {
        stage.schedule(key).await;
        let row = stage.fetch_row(RowKind::Ordinary).await;
        let mut txn = stage.started(&row).await;
        let _ = stage.execute(&mut txn, abuse).await;
        let result = stage.commit(txn).await;
        assert!(is_after_commit::<W>(&result), "{abuse}: {result:?}");
        if W::FEATURES.refuses_commit {
            assert_eq!(stage.one_scheduled().await.locked_by, row.locked_by);
            assert!(stage.is_waiting(key).await);
            return;
        }
        assert!(stage.scheduled().await.is_empty());
        assert!(stage.is_dated(key).await);

        // The pipeline does this in one transaction.
        let CommitResult::CommittedEarly(txn_handle) = result else { unreachable!() };
        let mut txn = stage.begin().await;
        assert!(stage.store.reopen(&mut txn, &row.identity, &txn_handle).await.unwrap());
        let new = idem_core::store::NewRow::new(&row.identity, &row.delivery, Err(Reason::Committed))
            .with_attempts(1, "ended by COMMIT");
        stage.store.insert(&mut txn, &[new]).await.unwrap();
        committed(stage.commit(txn).await);
        assert!(stage.is_waiting(key).await);
    }
    assert_eq!(stage.dead().await.len(), 2);
}

/// A handler ended the transaction and then failed: the rollback result shows whether its claim was committed.
pub async fn a_rollback_tells_how_the_handler_ended_the_transaction<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let commit = if W::FEATURES.refuses_commit { TxnOutcome::CommitRefused } else { TxnOutcome::CommittedEarly };
    // A database that rolls back by itself, for example when it is full, cannot tell a ROLLBACK from that.
    let ended = if W::FEATURES.errors_abort { TxnOutcome::Ended } else { TxnOutcome::RolledBack };
    let abuses = [
        ("SELECT 1", TxnOutcome::RolledBack),
        ("ROLLBACK", ended),
        ("ROLLBACK; BEGIN", ended),
        ("COMMIT", commit),
        ("COMMIT; BEGIN", commit),
    ];
    for (key, (abuse, expected)) in ["a", "b", "c", "d", "e"].into_iter().zip(abuses) {
        let mut txn = stage.claimed(&stage.id(key)).await;
        stage.effect(&mut txn, key).await;
        let _ = stage.execute(&mut txn, abuse).await;
        assert_eq!(stage.store.rollback(txn).await.unwrap(), expected, "{abuse}");
        let stands = expected == TxnOutcome::CommittedEarly;
        assert_eq!((stage.effects(key).await, stage.is_dated(key).await), (i64::from(stands), stands), "{abuse}");
    }
    stage.process("after").await;
}
