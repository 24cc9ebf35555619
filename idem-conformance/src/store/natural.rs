//! What natural handlers need: a guard without a claim, and a history without claims.

use std::time::{Duration, SystemTime};

use idem_core::store::{ClaimState, Claimed, CommitResult, Consumers, HandlerMark, Transactions, TxnOutcome};

use super::stage::{Stage, register};
use super::world::{Setup, World};

const LONG: Duration = Duration::from_secs(30);

/// Begins a guarded transaction in both ways, one after another.
async fn guarded<W: World>(stage: &Stage<W>, at_once: bool) -> <W::Store as Transactions>::Txn {
    if at_once {
        return stage.store.begin_first(LONG, None).await.unwrap().0;
    }
    let mut txn = stage.begin().await;
    stage.store.claim(&mut txn, &[], ClaimState::Processed).await.unwrap();
    // A second time it does nothing.
    stage.store.claim(&mut txn, &[], ClaimState::Processed).await.unwrap();
    txn
}

/// Its commit finds out how the handler has ended it, as with a claim. Without an abuse it commits.
pub async fn a_transaction_without_a_claim_is_guarded<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let commit = if W::FEATURES.refuses_commit { "CommitRefused" } else { "CommittedEarly" };
    for at_once in [true, false] {
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
    let ended = if W::FEATURES.errors_abort { TxnOutcome::Ended } else { TxnOutcome::RolledBack };
    let commit = if W::FEATURES.refuses_commit { TxnOutcome::CommitRefused } else { TxnOutcome::CommittedEarly };
    for at_once in [true, false] {
        let unabused = ("SELECT 1", TxnOutcome::RolledBack);
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

/// Its messages leave no claim, and it has a history nevertheless. The record makes no message too old, and hides nothing
/// that was pruned.
pub async fn a_handler_without_claims_has_a_history_once_it_is_recorded<W: World>(world: W) {
    const RETENTION: Duration = Duration::from_secs(3600);
    let stage = Stage::with(world, Setup { retention: Some(RETENTION), ..Setup::default() }).await;
    register(&stage.store, "billing", "other").await;
    let histories = async || {
        let known = stage.store.handlers(Some("billing")).await.unwrap();
        let known = known.into_iter().filter(|known| known.has_processed);
        known.map(|known| (known.name, known.has_claims)).collect::<Vec<_>>()
    };
    let through = async || match stage.claim_now(&stage.id("asks")).await {
        Claimed::New { pruned_through } => pruned_through,
        _ => panic!("it was rolled back each time"),
    };
    assert_eq!((histories().await, through().await), (Vec::new(), None));
    for _ in 0..2 {
        stage.store.mark(&[stage.handler], HandlerMark::Processes).await.unwrap();
        assert_eq!(histories().await, [("order_paid".to_owned(), false)]);
        assert_eq!(through().await, Some(SystemTime::UNIX_EPOCH));
    }
    stage.process("old").await;
    stage.claims_earlier(RETENTION * 2).await;
    assert_eq!(stage.store.prune().await.unwrap(), 1);
    let pruned = through().await;
    assert!(pruned > Some(SystemTime::UNIX_EPOCH), "{pruned:?}");
    stage.store.mark(&[stage.handler], HandlerMark::Processes).await.unwrap();
    assert_eq!(through().await, pruned);
}
