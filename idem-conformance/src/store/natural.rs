//! What natural handlers need: a guard without a claim, a history without claims, and latest versions.

use std::time::{Duration, SystemTime};

use idem_core::Latest;
use idem_core::store::{Claimed, Claims, CommitResult, History, Operator, Pruned, RollbackResult, Transactions};

use super::stage::{Stage, committed, register};
use super::world::{Setup, World};

const LONG: Duration = Duration::from_secs(30);

/// Begins a guarded transaction in both ways, one after another.
async fn guarded<W: World>(stage: &Stage<W>, at_once: bool) -> <W::Store as Transactions>::Txn {
    if at_once {
        return stage.store.begin_guarded(LONG).await.unwrap();
    }
    let mut txn = stage.begin().await;
    stage.store.guard(&mut txn).await.unwrap();
    // A second time it does nothing.
    stage.store.guard(&mut txn).await.unwrap();
    txn
}

/// Its commit finds out how the handler has ended it, as with a claim. Without an abuse it commits. Where several handlers
/// may share it, a COMMIT of one of them is refused.
pub async fn a_transaction_without_a_claim_is_guarded<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for at_once in [true, false] {
        let commit = match (W::FEATURES.refuses_commit, at_once) {
            (true, _) => "CommitRefused",
            (false, true) => "CommittedEarly",
            (false, false) => "RolledBack",
        };
        let abuses = [
            ("SELECT 1", "Done"),
            ("COMMIT", commit),
            ("COMMIT; BEGIN", commit),
            ("ROLLBACK", "RolledBack"),
            ("ROLLBACK; BEGIN", "RolledBack"),
        ];
        for (abuse, expected) in abuses {
            let name = format!("{abuse} {at_once}");
            let mut txn = guarded(&stage, at_once).await;
            stage.effect(&mut txn, &name).await;
            let _ = stage.execute(&mut txn, abuse).await;
            let found = match stage.commit(txn).await {
                CommitResult::CommittedEarly(_) => "CommittedEarly".to_owned(),
                other => format!("{other:?}"),
            };
            assert_eq!(found, expected, "{name}");
            let stands = matches!(expected, "Done" | "CommittedEarly");
            assert_eq!(stage.effects(&name).await, i64::from(stands), "{name}");
        }
    }
    let claims = format!("SELECT count(*) FROM {}", stage.world.own("processed_messages"));
    assert_eq!(stage.world.number(&claims).await, 0);
    stage.process("after").await;
}

/// So does its rollback, also of a handler that has written nothing before its COMMIT.
pub async fn a_rollback_without_a_claim_tells_how_the_handler_ended_it<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let ended = if W::FEATURES.errors_abort { RollbackResult::Ended } else { RollbackResult::RolledBack };
    for at_once in [true, false] {
        let commit = match (W::FEATURES.refuses_commit, at_once) {
            (true, _) => RollbackResult::CommitRefused,
            (false, true) => RollbackResult::CommittedEarly,
            (false, false) => ended,
        };
        let unabused = ("SELECT 1", RollbackResult::RolledBack);
        for (abuse, expected) in [unabused, ("ROLLBACK", ended), ("COMMIT", commit), ("COMMIT; BEGIN", commit)] {
            let mut txn = guarded(&stage, at_once).await;
            let _ = stage.execute(&mut txn, abuse).await;
            assert_eq!(stage.store.rollback(txn).await.unwrap(), expected, "{abuse} {at_once}");
        }
    }
}

/// An error that was swallowed is found out where it has aborted the transaction.
pub async fn a_swallowed_error_without_a_claim_is_found_out<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut txn = guarded(&stage, true).await;
    stage.effect(&mut txn, "before").await;
    assert!(stage.execute(&mut txn, "INSERT INTO there_is_no_such_table VALUES (1)").await.is_err());
    let found = stage.commit(txn).await;
    match W::FEATURES.errors_abort {
        true => assert!(matches!(found, CommitResult::Swallowed), "{found:?}"),
        false => assert!(matches!(found, CommitResult::Done), "{found:?}"),
    }
}

/// A version rises, and never falls or stays; each handler has its own, and a rollback takes it back.
pub async fn latest_versions_only_rise<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = register(&stage.store, "shipping", "order_paid").await;
    let versions = stage.store.latest_versions().await.unwrap();
    let (ours, theirs) = (Latest::new(versions.clone(), stage.handler), Latest::new(versions, other));
    let advance = async |latest: &Latest, entity: &str, version: i64, commits: bool| {
        let mut txn = stage.store.begin_guarded(LONG).await.unwrap();
        let connection = <W::Store as idem_core::HasConnection<W::Connection>>::connection(&mut txn);
        let advanced = W::advance(latest, connection, entity, version).await.unwrap();
        match commits {
            true => committed(stage.commit(txn).await),
            false => drop(stage.store.rollback(txn).await.unwrap()),
        }
        advanced
    };
    for (version, advanced) in [(2, true), (2, false), (1, false), (3, true), (i64::MIN, false), (i64::MAX, true)] {
        assert_eq!(advance(&ours, "order-1", version, true).await, advanced, "{version}");
    }
    assert!(advance(&ours, "order-2", i64::MIN, true).await, "the lowest version is one");
    assert!(advance(&theirs, "order-1", 2, true).await, "another handler has not seen it");
    assert!(advance(&ours, "order-3", 5, false).await);
    assert!(advance(&ours, "order-3", 5, true).await, "what saw it before was rolled back");
    let rows = format!("SELECT count(*) FROM {}", stage.world.own("latest_versions"));
    assert_eq!(stage.world.number(&rows).await, 4);
}

/// Its messages leave no claim, and it has a history nevertheless. The record makes no message too old, and hides nothing
/// that was pruned.
pub async fn a_handler_without_claims_has_a_history_once_it_is_recorded<W: World>(world: W) {
    const RETENTION: Duration = Duration::from_secs(3600);
    let stage = Stage::with(world, Setup { retention: Some(RETENTION), ..Setup::default() }).await;
    register(&stage.store, "billing", "other").await;
    let histories = async || {
        let histories = stage.store.histories("billing").await.unwrap();
        histories.into_iter().map(|history| (history.handler, history.has_claims)).collect::<Vec<_>>()
    };
    let through = async || match stage.claim_now(&stage.id("asks")).await {
        Claimed::New { pruned_through } => pruned_through,
        _ => panic!("it was rolled back each time"),
    };
    assert_eq!((histories().await, through().await), (Vec::new(), None));
    for _ in 0..2 {
        stage.store.record_history(stage.handler).await.unwrap();
        assert_eq!(histories().await, [("order_paid".to_owned(), false)]);
        assert_eq!(through().await, Some(SystemTime::UNIX_EPOCH));
    }
    stage.process("old").await;
    stage.claims_earlier(RETENTION * 2).await;
    assert_eq!(stage.store.prune().await.unwrap(), Pruned::of(1));
    let pruned = through().await;
    assert!(pruned > Some(SystemTime::UNIX_EPOCH), "{pruned:?}");
    stage.store.record_history(stage.handler).await.unwrap();
    assert_eq!(through().await, pruned);
}

/// They may have been filled by hand, or merged into a handler that has never run.
pub async fn latest_versions_alone_are_told_of_and_are_no_history<W: World>(world: W) {
    let stage = Stage::new(world).await;
    register(&stage.store, "billing", "other").await;
    let latest = Latest::new(stage.store.latest_versions().await.unwrap(), stage.handler);
    let found = async || {
        let histories = stage.store.histories("billing").await.unwrap();
        let found = |it: History| (it.handler, it.has_claims, it.has_versions, it.has_processed);
        histories.into_iter().map(found).collect::<Vec<_>>()
    };
    assert!(found().await.is_empty());
    let mut txn = stage.store.begin_guarded(LONG).await.unwrap();
    let connection = <W::Store as idem_core::HasConnection<W::Connection>>::connection(&mut txn);
    assert!(W::advance(&latest, connection, "order-1", 1).await.unwrap());
    committed(stage.commit(txn).await);
    for has_processed in [false, true] {
        assert_eq!(found().await, [("order_paid".to_owned(), false, true, has_processed)]);
        stage.store.record_history(stage.handler).await.unwrap();
    }
}

/// An entity is a key: none that is empty or too long.
pub async fn an_entity_that_is_no_key_has_no_version<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let latest = Latest::new(stage.store.latest_versions().await.unwrap(), stage.handler);
    let mut txn = stage.store.begin_guarded(LONG).await.unwrap();
    let connection = <W::Store as idem_core::HasConnection<W::Connection>>::connection(&mut txn);
    assert!(W::advance(&latest, connection, "", 1).await.is_err());
    assert!(W::advance(&latest, connection, &"x".repeat(256), 1).await.is_err());
    assert!(W::advance(&latest, connection, &"x".repeat(255), 1).await.unwrap());
    committed(stage.commit(txn).await);
}

/// Of two transactions that advance an entity at once, one waits for the other, and then sees its version.
pub async fn a_version_that_is_not_committed_is_waited_for<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        return;
    }
    let stage = Stage::new(world).await;
    let elsewhere = stage.world.store(Setup::default()).await.unwrap();
    let latest = Latest::new(stage.store.latest_versions().await.unwrap(), stage.handler);
    let mut first = stage.store.begin_guarded(LONG).await.unwrap();
    let connection = <W::Store as idem_core::HasConnection<W::Connection>>::connection(&mut first);
    assert!(W::advance(&latest, connection, "order-1", 2).await.unwrap());
    let late = latest.clone();
    let second = tokio::spawn(async move {
        let mut txn = elsewhere.begin_guarded(LONG).await.unwrap();
        let connection = <W::Store as idem_core::HasConnection<W::Connection>>::connection(&mut txn);
        let advanced = W::advance(&late, connection, "order-1", 1).await.unwrap();
        elsewhere.rollback(txn).await.unwrap();
        advanced
    });
    crate::soon(async {
        while stage.world.waiting().await == Some(0) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
    committed(stage.commit(first).await);
    assert!(!crate::soon(second).await.unwrap(), "the older one came later");
}
