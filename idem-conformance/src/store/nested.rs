//! Nested transactions in a handler; they never end the outer one.

use idem_core::HasConnection;
use idem_core::store::{CommitResult, Transactions, TxnOutcome};

use super::stage::{Stage, committed};
use super::world::{End, World};

async fn nest<W: World>(stage: &Stage<W>, txn: &mut <W::Store as Transactions>::Txn, name: &str, end: End) {
    let tx = <W::Store as HasConnection<W::Connection>>::connection(txn);
    W::nested(tx, &stage.effect_sql(name), end).await.unwrap();
}

/// A nested commit commits nothing before the outer commit.
pub async fn a_nested_commit_is_committed_with_the_claim<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    nest(&stage, &mut txn, "nested", End::Commit).await;
    assert_eq!(stage.effects("nested").await, 0, "nobody sees it yet");
    stage.effect(&mut txn, "outer").await;
    committed(stage.commit(txn).await);
    assert_eq!((stage.effects("nested").await, stage.effects("outer").await), (1, 1));
    assert!(stage.is_dated("a").await);
}

/// A nested commit is rolled back with the outer transaction.
pub async fn a_nested_commit_is_rolled_back_with_the_claim<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    nest(&stage, &mut txn, "nested", End::Commit).await;
    stage.store.rollback(txn).await.unwrap();
    assert_eq!((stage.effects("nested").await, stage.existing_claim("a").await), (0, None));
}

/// A nested rollback undoes the nested writes and nothing else.
pub async fn a_nested_rollback_leaves_the_claim<W: World>(world: W) {
    nested_end(world, End::Rollback).await;
}

/// The same holds for a dropped nested transaction.
pub async fn a_nested_drop_leaves_the_claim<W: World>(world: W) {
    nested_end(world, End::Drop).await;
}

async fn nested_end<W: World>(world: W, end: End) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "before").await;
    nest(&stage, &mut txn, "nested", end).await;
    stage.effect(&mut txn, "after").await;
    committed(stage.commit(txn).await);
    let effects = (stage.effects("before").await, stage.effects("nested").await, stage.effects("after").await);
    assert_eq!(effects, (1, 0, 1));
    assert!(stage.is_dated("a").await);

    // Nothing follows it, so our commit or rollback sends what sqlx left unsent.
    let mut txn = stage.claimed(&stage.id("b")).await;
    nest(&stage, &mut txn, "nested", end).await;
    committed(stage.commit(txn).await);
    assert!(stage.is_dated("b").await);
    let mut txn = stage.claimed(&stage.id("c")).await;
    nest(&stage, &mut txn, "nested", end).await;
    stage.store.rollback(txn).await.unwrap();
    assert_eq!((stage.effects("nested").await, stage.existing_claim("c").await), (0, None));
}

/// sqlx rolls back everything then, as a handler's own ROLLBACK would. The text of the error has the cause.
pub async fn a_nested_transaction_that_never_began_is_told_from_a_rollback<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for writes_on in [false, true] {
        let mut txn = stage.claimed(&stage.id("a")).await;
        stage.effect(&mut txn, "before").await;
        nest(&stage, &mut txn, "nested", End::Unbegun).await;
        if writes_on {
            assert!(stage.execute(&mut txn, &stage.effect_sql("after")).await.is_err());
        }
        let committed = stage.commit(txn).await;
        assert!(
            matches!(&committed, CommitResult::Refused(error) if error.to_string().contains("`begin()`")),
            "{committed:?}"
        );
        let mut txn = stage.claimed(&stage.id("a")).await;
        nest(&stage, &mut txn, "nested", End::Unbegun).await;
        assert_eq!(stage.store.rollback(txn).await.unwrap(), TxnOutcome::Unbegun);
        let effects = (stage.effects("before").await, stage.effects("after").await);
        assert_eq!((effects, stage.existing_claim("a").await), ((0, 0), None));
    }
    stage.process("a").await;
}

/// Nested transactions leave the connection usable for the next transactions.
pub async fn nested_transactions_leave_the_connection_fit<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for round in 0..5 {
        for (n, end) in [End::Commit, End::Rollback, End::Drop].into_iter().enumerate() {
            let key = format!("{round}-{n}");
            let mut txn = stage.claimed(&stage.id(&key)).await;
            nest(&stage, &mut txn, "twice", end).await;
            nest(&stage, &mut txn, "twice", end).await;
            stage.effect(&mut txn, &key).await;
            match round % 2 {
                0 => committed(stage.commit(txn).await),
                _ => drop(stage.store.rollback(txn).await.unwrap()),
            }
            assert_eq!(stage.effects(&key).await, i64::from(round % 2 == 0), "{round} {end:?}");
        }
    }
    assert_eq!(stage.effects("twice").await, 3 * 2);
}
