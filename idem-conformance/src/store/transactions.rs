//! Transactions: all or nothing, and transactions that are never ended.

use std::pin::pin;
use std::time::{Duration, Instant};

use idem_core::store::{ClaimState, CommitResult, ErrorClass, StoreError, Transactions};

use super::stage::{Stage, committed, settled};
use super::world::{Setup, World};

/// The claim and the handler's writes are atomic.
pub async fn claim_and_write_commit_together_or_not_at_all<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("kept")).await;
    stage.effect(&mut txn, "kept").await;
    assert_eq!(stage.effects("kept").await, 0, "nobody sees it before the commit");
    committed(stage.commit(txn).await);
    assert_eq!((stage.effects("kept").await, stage.is_dated("kept").await), (1, true));

    let mut txn = stage.claimed(&stage.id("lost")).await;
    stage.effect(&mut txn, "lost").await;
    stage.store.rollback(txn).await.unwrap();
    assert_eq!((stage.effects("lost").await, stage.existing_claim("lost").await), (0, None));
}

/// A dropped transaction, as by a cancelled handler, is rolled back by itself.
pub async fn a_dropped_transaction_is_rolled_back_and_its_claim_free<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "a").await;
    drop(txn);
    let claimed = settled(async || {
        let mut txn = stage.begin().await;
        let claimed = stage.store.claim(&mut txn, &[&stage.id("a")], ClaimState::Processed).await;
        stage.store.rollback(txn).await.unwrap();
        // The server may notice the closed connection only after the claim has waited for it.
        if matches!(claimed, Err(StoreError::LockTimeout)) { None } else { Some(claimed.unwrap()[0]) }
    })
    .await;
    assert_eq!((claimed.is_new(), stage.effects("a").await), (true, 0));
}

/// Futures of `begin`, `claim` and `commit` that are dropped at any point leave neither locks nor connections behind.
pub async fn a_dropped_future_leaves_no_open_transaction<W: World>(world: W) {
    let stage = Stage::with(world, Setup { connections: Some(4), ..Setup::default() }).await;
    for polls in 0..60 {
        let step = async {
            let mut txn = stage.begin().await;
            let _ = stage.store.claim(&mut txn, &[&stage.id("cancelled")], ClaimState::Processed).await;
            let _ = stage.execute(&mut txn, &stage.effect_sql("cancelled")).await;
            stage.store.rollback(txn).await
        };
        let mut step = pin!(step);
        for _ in 0..polls {
            if futures_util::poll!(step.as_mut()).is_ready() {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    // All connections are still usable, and none is inside an earlier transaction.
    let processed = (0..8).map(|n| format!("after-{n}")).collect::<Vec<_>>();
    crate::soon(futures_util::future::join_all(processed.iter().map(|key| stage.process(key)))).await;
    for key in &processed {
        assert_eq!(stage.effects(key).await, 1);
    }
    assert_eq!(stage.effects("cancelled").await, 0);
    settled(async || {
        let mut txn = stage.begin().await;
        let claimed = stage.store.claim(&mut txn, &[&stage.id("cancelled")], ClaimState::Processed).await;
        stage.store.rollback(txn).await.unwrap();
        claimed.ok().filter(|claimed| claimed[0].is_new())
    })
    .await;
}

/// A handler with a hanging statement does not hold its claim beyond its handler timeout.
pub async fn a_statement_ends_at_the_handler_timeout<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.store.begin(Duration::from_millis(200)).await.unwrap();
    stage.store.claim(&mut txn, &[&stage.id("a")], ClaimState::Processed).await.unwrap();
    let began = Instant::now();
    assert!(stage.execute(&mut txn, W::FEATURES.long).await.is_err());
    assert!(began.elapsed() < Duration::from_secs(10));
    stage.store.rollback(txn).await.unwrap();
    assert!(stage.claim_now(&stage.id("a")).await.is_new());
}

/// A connection lost inside a handler shows only in our ROLLBACK.
pub async fn a_broken_connection_is_lost_and_the_store_goes_on<W: World>(world: W) {
    let Some(terminate_backend) = W::FEATURES.terminate_backend else { return };
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "a").await;
    assert!(stage.execute(&mut txn, terminate_backend).await.is_err());
    assert!(matches!(stage.store.rollback(txn).await, Err(StoreError::ConnectionLost(_))));
    stage.store.ping().await.unwrap();
    stage.process("a").await;
    assert_eq!(stage.effects("a").await, 1);
}

/// A commit on a lost connection counts neither as success nor as failure, whether COMMIT was sent or not.
pub async fn a_commit_without_an_answer_is_unknown<W: World>(world: W) {
    let Some(terminate_backend) = W::FEATURES.terminate_backend else { return };
    let stage = Stage::new(world).await;
    let mut txn = stage.claimed(&stage.id("a")).await;
    let _ = stage.execute(&mut txn, terminate_backend).await;
    let committed = stage.commit(txn).await;
    assert!(matches!(committed, CommitResult::Unknown(_) | CommitResult::NotSent(..)), "{committed:?}");
    stage.process("a").await;
}

/// A deferred constraint fails at COMMIT: nothing is written, and the store goes on.
pub async fn a_commit_that_is_refused_writes_nothing<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (parents, children) = (stage.world.name("parents"), stage.world.name("children"));
    stage.world.run(&format!("CREATE TABLE {parents} (id INTEGER PRIMARY KEY)")).await;
    let references = format!("parent INTEGER NOT NULL REFERENCES {parents} (id) DEFERRABLE INITIALLY DEFERRED");
    stage.world.run(&format!("CREATE TABLE {children} ({references})")).await;

    let mut txn = stage.claimed(&stage.id("a")).await;
    stage.effect(&mut txn, "a").await;
    stage.execute(&mut txn, &format!("INSERT INTO {children} (parent) VALUES (1)")).await.unwrap();
    let committed = stage.commit(txn).await;
    let CommitResult::Refused(error) = committed else { panic!("{committed:?}") };
    assert!(error.to_string().to_lowercase().contains("foreign key"), "{error}");
    assert_eq!((stage.effects("a").await, stage.existing_claim("a").await), (0, None));
    stage.process("a").await;
}

/// Without a claim or a start there is nothing to guard.
pub async fn a_transaction_of_our_own_commits_without_a_claim<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = stage.begin().await;
    stage.effect(&mut txn, "a").await;
    committed(stage.commit(txn).await);
    assert_eq!(stage.effects("a").await, 1);
    let empty = stage.begin().await;
    committed(stage.commit(empty).await);
}

/// The loser of a deadlock is distinguished from a failure, since a new transaction may succeed.
pub async fn a_deadlock_is_a_lost_race<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    for name in ["x", "y"] {
        let mut txn = stage.begin().await;
        stage.effect(&mut txn, name).await;
        committed(stage.commit(txn).await);
    }
    let lock = |name: &str| format!("UPDATE {} SET name = name WHERE name = '{name}'", stage.world.name("effects"));
    let (mut one, mut two) = (stage.claimed(&stage.id("a")).await, stage.claimed(&stage.id("b")).await);
    stage.execute(&mut one, &lock("x")).await.unwrap();
    stage.execute(&mut two, &lock("y")).await.unwrap();
    let (lock_x, lock_y) = (lock("x"), lock("y"));
    // The loser must roll back, or the other one never ends.
    let mut lost = 0;
    let run = async |mut txn, sql: &str| {
        let locked = stage.execute(&mut txn, sql).await;
        stage.store.rollback(txn).await.unwrap();
        locked.err()
    };
    let (first, second) = tokio::join!(run(one, &lock_y), run(two, &lock_x));
    for error in [first, second].into_iter().flatten() {
        assert_eq!(stage.store.classify_error(None, error.as_ref()), ErrorClass::Deadlock, "{error:?}");
        lost += 1;
    }
    assert_eq!(lost, 1);
    assert_eq!(stage.store.classify_error(None, &std::fmt::Error), ErrorClass::Ordinary);
}
