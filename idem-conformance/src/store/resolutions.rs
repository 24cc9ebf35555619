//! What an operator does about dead rows whose handlers make a call.

use idem_core::Reason;
use idem_core::store::{
    CallResult, InboxRows, Remedies, Replay, Replayed, Resolution, RowKind, RowResult, Transactions, next_provider_key,
};
use uuid::Uuid;

use super::calling::{answer, failed, fetch, fetch_row, fetched, is_seen, resolve, store};
use super::stage::Stage;
use super::world::World;

/// Its call may have had an effect, so only a person who has looked changes it.
pub async fn an_unresolved_call_is_only_resolved<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    let unresolved = CallResult::dead(Reason::Unresolved, "nobody knows".to_owned());
    assert!(stage.store.record_result(&row, &RowResult::Called(unresolved.clone())).await.unwrap());
    let dead = stage.one_dead().await;
    assert_eq!((dead.reason, dead.error.as_str(), dead.attempts), (Some(Reason::Unresolved), "nobody knows", 0));
    assert_eq!((dead.provider_key, dead.called_at), (row.provider_key, row.called_at));
    for how in [Replay::Plain, Replay::Forced] {
        assert_eq!(stage.replay(row.id, how).await, Replayed::Unresolved);
    }
    assert!(!stage.discard(row.id).await);
    assert!(!stage.resolve_of("shipping", row.id, Some(row.provider_key.unwrap()), &Resolution::CallAgain).await);
    assert_eq!((stage.dead().await.len(), fetch(&stage).await.len()), (1, 0));

    assert!(resolve(&stage, &row, &Resolution::CallAgain).await);
    let again = fetch_row(&stage).await;
    assert_eq!(again.provider_key, row.provider_key.map(next_provider_key), "the old key is not used again");
    assert_eq!((again.calls, again.attempts), (Some(1), 0));
    assert!(again.called_at >= row.called_at);
    assert!(stage.store.record_result(&again, &RowResult::Called(unresolved.clone())).await.unwrap());

    for resolution in [Resolution::Answer(answer()), Resolution::CallAgain, Resolution::Discard] {
        assert!(!resolve(&stage, &row, &resolution).await, "it is about the old key");
    }
    assert!(resolve(&stage, &again, &Resolution::Answer(answer())).await);
    assert!(fetch(&stage).await.is_empty());
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!((ordinary.answer, ordinary.crash_count, ordinary.provider_key), (Some(answer()), 1, again.provider_key));
}

/// Its handler would run without an answer, although the call may have had an effect.
pub async fn a_row_whose_call_may_have_begun_is_not_made_ordinary_by_hand<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (row, inbox) = (fetched(&stage).await, stage.world.own("inbox_messages"));
    let values =
        "state = 'scheduled', reason = NULL, died_at = NULL, attempts = 0, crash_count = 0, lost_connections = 0";
    let replay = format!("UPDATE {inbox} SET {values}");
    let fails = async || {
        let mut txn = stage.begin().await;
        let replayed = stage.execute(&mut txn, &replay).await;
        stage.store.rollback(txn).await.unwrap();
        replayed.is_err()
    };
    assert!(stage.store.record_result(&row, &RowResult::Called(failed(Err(Reason::Exhausted)))).await.unwrap());
    assert!(fails().await, "its call is in doubt");
    assert!(resolve(&stage, &row, &Resolution::Answer(answer())).await);
    assert!(!fails().await, "it has an answer");
    stage.world.run(&format!("UPDATE {inbox} SET answer = NULL, called_at = NULL")).await;
    assert!(!fails().await, "no call has begun");
}

/// The message is not handled, and a copy of it is a duplicate.
pub async fn an_unresolved_call_is_discarded<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    let unresolved = CallResult::dead(Reason::Unresolved, String::new());
    assert!(stage.store.record_result(&row, &RowResult::Called(unresolved.clone())).await.unwrap());
    assert!(resolve(&stage, &row, &Resolution::Discard).await);
    assert!(!resolve(&stage, &row, &Resolution::Discard).await);
    assert!(stage.dead().await.is_empty() && stage.is_dated("a").await);
    // Other dead letters are not a matter of calls.
    let other = stage.dead_letter("b", Reason::Exhausted).await;
    for resolution in [Resolution::CallAgain, Resolution::Answer(answer()), Resolution::Discard] {
        assert!(!stage.resolve(other, Some(Uuid::nil()), &resolution).await);
    }
    assert!(stage.discard(other).await);
}

/// Without its row, nobody would find what it has paid. An operator who knows resolves it.
pub async fn a_dead_letter_that_may_have_called_is_not_discarded<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut row = fetched(&stage).await;
    for reason in [Reason::Exhausted, Reason::Permanent, Reason::TooLarge, Reason::Crashed] {
        assert!(
            stage.store.record_result(&row, &RowResult::Called(CallResult::dead(reason, String::new()))).await.unwrap()
        );
        assert!(!stage.discard(row.id).await, "{reason}");
        assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due);
        row = fetch_row(&stage).await;
    }
    assert!(stage.store.record_result(&row, &RowResult::Called(CallResult::answered(answer()))).await.unwrap());
    let row = stage.fetch_row(RowKind::Ordinary).await;
    let result = RowResult::Failed { next: Err(Reason::Exhausted), error: String::new() };
    assert!(stage.store.record_result(&row, &result).await.unwrap());
    assert!(!stage.discard(row.id).await, "it has an answer");
    assert!(resolve(&stage, &row, &Resolution::Discard).await);
    assert!(stage.dead().await.is_empty() && stage.is_dated("a").await);
    // One whose call certainly had no effect is like any other.
    store(&stage, "b").await;
    let unused = CallResult { is_unused: true, ..failed(Err(Reason::Exhausted)) };
    let row = fetch_row(&stage).await;
    assert!(stage.store.record_result(&row, &RowResult::Called(unused.clone())).await.unwrap());
    assert!(stage.discard(row.id).await);
}

/// Otherwise another worker could ask the provider, and call again, while the request is still on its way.
pub async fn a_replay_of_a_call_in_doubt_waits_for_its_lease<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut row = fetched(&stage).await;
    let gives_up = CallResult { in_doubt: true, ..failed(Err(Reason::Exhausted)) };
    for again in [false, true] {
        assert!(stage.store.record_result(&row, &RowResult::Called(gives_up.clone())).await.unwrap());
        match again {
            false => assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due),
            true => assert!(resolve(&stage, &row, &Resolution::CallAgain).await),
        }
        assert!(fetch(&stage).await.is_empty(), "its request may be on its way");
        assert_eq!(Some(stage.one_scheduled().await.run_at), row.locked_until);
        stage.end_leases().await;
        row = fetch_row(&stage).await;
    }
    // One whose call goes on is turned into a dead letter by an operator's statement.
    stage.world.run(&Remedies::of(&stage.store, "billing", "order_paid", "").dead_letter).await;
    assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due);
    assert!(fetch(&stage).await.is_empty() && Some(stage.one_scheduled().await.run_at) == row.locked_until);
    // An answer ends the doubt.
    stage.world.run(&Remedies::of(&stage.store, "billing", "order_paid", "").dead_letter).await;
    assert!(resolve(&stage, &row, &Resolution::Answer(answer())).await);
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.answer, Some(answer()));
}

/// Its key and the time of its first call are as they were. With an answer, it completes, and calls nobody.
pub async fn a_replayed_call_keeps_its_key_and_its_answer<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &RowResult::Called(failed(Err(Reason::Exhausted)))).await.unwrap());
    assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due);
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty() && stage.fetch(RowKind::Orphan).await.is_empty());
    let again = fetch_row(&stage).await;
    assert_eq!((again.provider_key, again.called_at, again.attempts), (row.provider_key, row.called_at, 0));
    assert!(
        stage
            .store
            .record_result(&again, &RowResult::Called(CallResult::dead(Reason::Crashed, String::new())))
            .await
            .unwrap()
    );
    assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due);
    assert!(!is_seen(&stage).await, "a crash in a call makes no orphaned row");
    let again = fetch_row(&stage).await;
    assert!(stage.store.record_result(&again, &RowResult::Called(CallResult::answered(answer()))).await.unwrap());
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    let result = RowResult::Failed { next: Err(Reason::Exhausted), error: String::new() };
    assert!(stage.store.record_result(&ordinary, &result).await.unwrap());
    assert!(!resolve(&stage, &row, &Resolution::CallAgain).await, "it has an answer");
    assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due);
    assert!(fetch(&stage).await.is_empty());
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.answer, Some(answer()));
}
