//! Rows in their call phase.

use std::time::{Duration, SystemTime};

use idem_core::store::{
    CallAnswer, CallResult, CallRows, Caller, ClaimState, Claims, InboxRows, NewRow, Operator, Replayed, Resolution, Row,
    RowKind, RowResult,
};
use idem_core::{Delivery, Reason};
use uuid::Uuid;

use super::stage::{LEASE, Stage, committed};
use super::world::World;

const HOUR: Duration = Duration::from_secs(3600);

/// Stores a message whose handler makes a call, due now.
async fn store<W: World>(stage: &Stage<W>, key: &str) {
    let (identity, delivery) = (stage.id(key), Delivery::new("orders", "payload"));
    let mut txn = stage.begin().await;
    assert!(stage.store.claim(&mut txn, &identity, ClaimState::Waiting).await.unwrap().is_new());
    let row = NewRow::new(&identity, &delivery, Ok(Duration::ZERO)).with_call();
    // As several deliveries are stored, and as one is.
    match key {
        "many" => stage.store.insert_many(&mut txn, &[row]).await.unwrap(),
        _ => drop(stage.store.insert(&mut txn, &row).await.unwrap()),
    }
    committed(stage.commit(txn).await);
}

async fn take<W: World>(stage: &Stage<W>) -> Vec<Row> {
    let caller = Caller { handler: stage.handler, lease: LEASE };
    stage.store.take_calls(&[caller], 100, Uuid::new_v4()).await.unwrap()
}

async fn take_one<W: World>(stage: &Stage<W>) -> Row {
    let mut rows = take(stage).await;
    assert_eq!(rows.len(), 1, "taken rows: {rows:?}");
    rows.remove(0)
}

/// A row that was stored and taken.
async fn taken<W: World>(stage: &Stage<W>) -> Row {
    store(stage, "a").await;
    take_one(stage).await
}

fn failed(next: Result<Duration, Reason>) -> CallResult {
    let error = Some("it failed".to_owned());
    CallResult { next, error, is_attempt: true, ..CallResult::given_back(Duration::ZERO) }
}

fn answer() -> CallAnswer {
    CallAnswer::new("{\"id\":7}")
}

/// Whether any statement of ordinary rows or suspects finds a row. Those of a version that does not know calls are the same.
async fn is_seen<W: World>(stage: &Stage<W>) -> bool {
    let due = stage.store.poll_due(&[stage.handler], Duration::ZERO).await.unwrap();
    let crashed = stage.store.dead_letter_crashed(&[stage.handler], Duration::ZERO).await.unwrap();
    let taken = [stage.take(RowKind::Ordinary).await, stage.take(RowKind::Suspect).await].concat();
    due.ordinary || due.suspect || due.crashed || !crashed.is_empty() || !taken.is_empty()
}

/// The key, the time of the first call and the count are written by the take, before the call.
pub async fn a_call_is_written_before_it_is_made<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "a").await;
    let row = stage.one_scheduled().await;
    assert_eq!((row.calls, row.outbound, row.called_at, row.starts), (Some(0), None, None, 0));
    let row = take_one(&stage).await;
    assert_eq!((row.calls, row.starts, row.attempts), (Some(1), 0, 0));
    assert_eq!(row.due_at.duration_since(row.called_at.unwrap()).unwrap(), LEASE);
    let written = stage.one_scheduled().await;
    assert_eq!((written.token, written.outbound, written.calls), (row.token, row.outbound, Some(1)));
    assert!(row.outbound.is_some() && written.called_at == row.called_at);
    assert!(take(&stage).await.is_empty(), "its lease has not ended");
    assert_eq!(stage.store.calls_by_token(row.token.unwrap()).await.unwrap()[0].outbound, row.outbound);
    assert!(stage.store.rows_by_token(row.token.unwrap()).await.unwrap().is_empty());
}

/// No other take finds it, whether it waits, is called, or was left by a process that ended.
pub async fn a_row_in_its_call_phase_is_taken_for_its_call_only<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "many").await;
    assert!(!is_seen(&stage).await);
    for calls in 1..=12 {
        let row = take_one(&stage).await;
        assert_eq!(row.calls, Some(calls));
        stage.rows_earlier(HOUR).await;
        assert!(!is_seen(&stage).await, "{calls}");
    }
    let stats = stage.store.stats(&[stage.handler]).await.unwrap();
    assert_eq!(stats.scheduled, 1);
    assert!(stats.oldest_due.unwrap() > HOUR / 2);
    stage.schedule("ordinary").await;
    assert_eq!(take(&stage).await.len(), 1, "an ordinary row is not called for");
    assert_eq!(stage.take_one(RowKind::Ordinary).await.identity, stage.id("ordinary"));
}

/// A call that is repeated has the key and the time of the first one.
pub async fn a_repeated_call_keeps_its_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let first = taken(&stage).await;
    stage.rows_earlier(HOUR).await;
    let second = take_one(&stage).await;
    assert_eq!((second.outbound, second.called_at, second.calls), (first.outbound, first.called_at, Some(2)));
    assert_ne!(second.token, first.token);
    // The former holder writes nothing.
    for result in [failed(Ok(HOUR)), CallResult::answered(answer()), CallResult::given_back(HOUR)] {
        assert!(!stage.store.record_call(&first, &result).await.unwrap());
    }
    assert!(!stage.store.renew_call(&first, Uuid::new_v4(), LEASE).await.unwrap());
    assert_eq!(stage.one_scheduled().await.token, second.token);
    assert!(stage.store.record_call(&second, &failed(Ok(Duration::ZERO))).await.unwrap());
    let third = take_one(&stage).await;
    assert_eq!((third.outbound, third.called_at, third.calls), (first.outbound, first.called_at, Some(1)));
    assert_eq!((third.attempts, third.error.as_str()), (1, "it failed"));
}

/// The row becomes an ordinary one, without failed attempts, and is called for no more.
pub async fn an_answer_makes_an_ordinary_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = taken(&stage).await;
    assert!(stage.store.record_call(&row, &failed(Ok(Duration::ZERO))).await.unwrap());
    let row = take_one(&stage).await;
    assert!(stage.store.record_call(&row, &CallResult::answered(answer())).await.unwrap());
    assert!(!stage.store.record_call(&row, &CallResult::answered(answer())).await.unwrap());
    assert!(take(&stage).await.is_empty());
    let ordinary = stage.take_one(RowKind::Ordinary).await;
    assert_eq!((ordinary.answer.as_ref(), ordinary.outbound), (Some(&answer()), row.outbound));
    assert_eq!((ordinary.calls, ordinary.starts, ordinary.attempts), (None, 1, 0));
    // A failure of the completion keeps the answer.
    let result = RowResult::Failed { next: Ok(Duration::ZERO), error: "the handler failed".to_owned() };
    assert!(stage.store.record_result(&ordinary, &result).await.unwrap());
    assert!(take(&stage).await.is_empty());
    assert_eq!(stage.take_one(RowKind::Ordinary).await.answer, Some(answer()));
}

/// Otherwise another worker could call while the request is still on its way.
pub async fn a_call_in_doubt_leaves_its_lease_to_end<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = taken(&stage).await;
    let doubt = CallResult { in_doubt: true, ..failed(Ok(Duration::ZERO)) };
    assert!(stage.store.record_call(&row, &doubt).await.unwrap());
    let left = stage.one_scheduled().await;
    assert_eq!((left.token, left.due_at, left.called_at), (None, row.due_at, row.called_at));
    assert!(take(&stage).await.is_empty());
    stage.rows_earlier(LEASE).await;
    let row = take_one(&stage).await;
    let later = CallResult { in_doubt: true, ..failed(Ok(HOUR)) };
    assert!(stage.store.record_call(&row, &later).await.unwrap());
    assert!(stage.one_scheduled().await.due_at > row.due_at + HOUR / 2, "the longer time counts");
}

/// A call that certainly had no effect leaves its key unused; the next one is the first.
pub async fn a_call_without_effect_leaves_its_key_unused<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = taken(&stage).await;
    let unused = CallResult { is_unused: true, ..failed(Ok(Duration::ZERO)) };
    assert!(stage.store.record_call(&row, &unused).await.unwrap());
    let left = stage.one_scheduled().await;
    assert_eq!((left.called_at, left.outbound, left.attempts, left.calls), (None, row.outbound, 1, Some(0)));
    let again = take_one(&stage).await;
    assert_eq!((again.outbound, again.calls), (row.outbound, Some(1)));
    assert!(again.called_at.unwrap() >= row.called_at.unwrap());
    assert_eq!(again.due_at.duration_since(again.called_at.unwrap()).unwrap(), LEASE);
}

/// It is written before it is used, together with the time of its first use.
pub async fn another_key_begins_anew<W: World>(world: W) {
    let stage = Stage::new(world).await;
    taken(&stage).await;
    stage.rows_earlier(HOUR).await;
    let (row, key) = (take_one(&stage).await, Uuid::new_v4());
    assert!(stage.store.renew_call(&row, key, 2 * LEASE).await.unwrap());
    let renewed = stage.one_scheduled().await;
    assert_eq!((renewed.outbound, renewed.token), (Some(key), row.token));
    assert_eq!(renewed.due_at.duration_since(renewed.called_at.unwrap()).unwrap(), 2 * LEASE);
    assert!(renewed.called_at > row.called_at);
}

/// One that an older version has stored, for example.
pub async fn an_ordinary_row_is_left_to_its_call<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let row = stage.take_one(RowKind::Ordinary).await;
    assert!(stage.store.record_result(&row, &RowResult::LeftToCall).await.unwrap());
    assert!(!stage.store.record_result(&row, &RowResult::LeftToCall).await.unwrap());
    assert!(!is_seen(&stage).await);
    let row = take_one(&stage).await;
    assert_eq!((row.calls, row.starts, row.breaks, row.attempts), (Some(1), 0, 0, 0));
    // A holder from before gives its start back, and there is none.
    stage.store.refund_start(&row).await.unwrap();
    assert_eq!(stage.one_scheduled().await.calls, Some(1));
}

/// Its call may have had an effect, so only a person who has looked changes it.
pub async fn an_unresolved_call_is_only_resolved<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = taken(&stage).await;
    let unresolved = CallResult::dead(Reason::Unresolved, "nobody knows".to_owned());
    assert!(stage.store.record_call(&row, &unresolved).await.unwrap());
    let dead = stage.one_dead().await;
    assert_eq!((dead.reason, dead.error.as_str(), dead.attempts), (Some(Reason::Unresolved), "nobody knows", 0));
    assert_eq!((dead.outbound, dead.called_at), (row.outbound, row.called_at));
    for force in [false, true] {
        assert_eq!(stage.store.replay("billing", row.id, force).await.unwrap(), Replayed::Unresolved);
    }
    assert!(!stage.store.discard("billing", row.id).await.unwrap());
    assert!(!stage.store.resolve("shipping", row.id, &Resolution::CallAgain).await.unwrap());
    assert_eq!((stage.dead().await.len(), take(&stage).await.len()), (1, 0));

    assert!(stage.store.resolve("billing", row.id, &Resolution::CallAgain).await.unwrap());
    let again = take_one(&stage).await;
    assert!(again.outbound.is_some() && again.outbound != row.outbound, "the old key is not used again");
    assert_eq!((again.calls, again.attempts), (Some(1), 0));
    assert!(again.called_at >= row.called_at);
    assert!(stage.store.record_call(&again, &unresolved).await.unwrap());

    assert!(stage.store.resolve("billing", row.id, &Resolution::Answer(answer())).await.unwrap());
    assert!(take(&stage).await.is_empty());
    let ordinary = stage.take_one(RowKind::Ordinary).await;
    assert_eq!((ordinary.answer, ordinary.starts, ordinary.outbound), (Some(answer()), 1, again.outbound));
}

/// The message is not handled, and a copy of it is a duplicate.
pub async fn an_unresolved_call_is_discarded<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = taken(&stage).await;
    let unresolved = CallResult::dead(Reason::Unresolved, String::new());
    assert!(stage.store.record_call(&row, &unresolved).await.unwrap());
    assert!(stage.store.resolve("billing", row.id, &Resolution::Discard).await.unwrap());
    assert!(!stage.store.resolve("billing", row.id, &Resolution::Discard).await.unwrap());
    assert!(stage.dead().await.is_empty() && stage.is_dated("a").await);
    // Other dead letters are not a matter of calls.
    let other = stage.dead_letter("b", Reason::Exhausted).await;
    for resolution in [Resolution::CallAgain, Resolution::Answer(answer()), Resolution::Discard] {
        assert!(!stage.store.resolve("billing", other, &resolution).await.unwrap());
    }
    assert!(stage.store.discard("billing", other).await.unwrap());
}

/// Otherwise another worker could ask the provider, and call under another key, while the request is still on its way.
pub async fn a_replay_of_a_call_in_doubt_waits_for_its_lease<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut row = taken(&stage).await;
    let gives_up = CallResult { in_doubt: true, ..failed(Err(Reason::Exhausted)) };
    for again in [false, true] {
        assert!(stage.store.record_call(&row, &gives_up).await.unwrap());
        match again {
            false => assert_eq!(stage.store.replay("billing", row.id, false).await.unwrap(), Replayed::Due),
            true => assert!(stage.store.resolve("billing", row.id, &Resolution::CallAgain).await.unwrap()),
        }
        assert!(take(&stage).await.is_empty(), "its request may be on its way");
        assert_eq!(stage.one_scheduled().await.due_at, row.due_at);
        stage.end_leases().await;
        row = take_one(&stage).await;
    }
    // One whose call goes on is turned into a dead letter by an operator's statement.
    stage.world.run(&stage.store.cures("billing", "order_paid", "").dead_letter).await;
    assert_eq!(stage.store.replay("billing", row.id, false).await.unwrap(), Replayed::Due);
    assert!(take(&stage).await.is_empty() && stage.one_scheduled().await.due_at == row.due_at);
    // An answer ends the doubt.
    stage.world.run(&stage.store.cures("billing", "order_paid", "").dead_letter).await;
    assert!(stage.store.resolve("billing", row.id, &Resolution::Answer(answer())).await.unwrap());
    assert_eq!(stage.take_one(RowKind::Ordinary).await.answer, Some(answer()));
}

/// Its key and the time of its first call are as they were. With an answer, it completes, and calls nobody.
pub async fn a_replayed_call_keeps_its_key_and_its_answer<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = taken(&stage).await;
    assert!(stage.store.record_call(&row, &failed(Err(Reason::Exhausted))).await.unwrap());
    assert_eq!(stage.store.replay("billing", row.id, false).await.unwrap(), Replayed::Due);
    assert!(stage.take(RowKind::Ordinary).await.is_empty() && stage.take(RowKind::Suspect).await.is_empty());
    let again = take_one(&stage).await;
    assert_eq!((again.outbound, again.called_at, again.attempts), (row.outbound, row.called_at, 0));
    assert!(stage.store.record_call(&again, &CallResult::dead(Reason::Crashed, String::new())).await.unwrap());
    assert_eq!(stage.store.replay("billing", row.id, false).await.unwrap(), Replayed::Due);
    assert!(!is_seen(&stage).await, "a crash in a call makes no suspect");
    let again = take_one(&stage).await;
    assert!(stage.store.record_call(&again, &CallResult::answered(answer())).await.unwrap());
    let ordinary = stage.take_one(RowKind::Ordinary).await;
    let result = RowResult::Failed { next: Err(Reason::Exhausted), error: String::new() };
    assert!(stage.store.record_result(&ordinary, &result).await.unwrap());
    assert!(!stage.store.resolve("billing", row.id, &Resolution::CallAgain).await.unwrap(), "it has an answer");
    assert_eq!(stage.store.replay("billing", row.id, false).await.unwrap(), Replayed::Due);
    assert!(take(&stage).await.is_empty());
    assert_eq!(stage.take_one(RowKind::Ordinary).await.answer, Some(answer()));
}

/// The oldest rows come first, of all callers, no more than the limit, each with the lease of its caller.
pub async fn calls_are_taken_by_their_limit<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = super::stage::register(&stage.store, "billing", "refunds").await;
    for key in ["a", "b", "c"] {
        store(&stage, key).await;
        stage.rows_earlier(Duration::from_secs(60)).await;
    }
    let callers = [Caller { handler: other, lease: LEASE }, Caller { handler: stage.handler, lease: 3 * LEASE }];
    let token = Uuid::new_v4();
    let taken = stage.store.take_calls(&callers, 2, token).await.unwrap();
    let mut ids: Vec<_> = taken.iter().map(|row| row.identity.clone()).collect();
    ids.sort_by_key(|id| id.key.as_bytes().to_vec());
    assert_eq!(ids, [stage.id("a"), stage.id("b")]);
    assert!(taken.iter().all(|row| row.token == Some(token)));
    let lease = |row: &Row| row.due_at.duration_since(row.called_at.unwrap_or(SystemTime::UNIX_EPOCH)).unwrap();
    assert!(taken.iter().all(|row| lease(row) == 3 * LEASE));
    assert!(stage.store.take_calls(&callers[..1], 2, token).await.unwrap().is_empty(), "those of one caller");
}
