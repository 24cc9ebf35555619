//! Rows in their call phase.

use std::pin::pin;
use std::time::{Duration, Instant, SystemTime};

use idem_core::Reason;
use idem_core::store::{
    CallResult, Consumers, FetchFor, FetchLimit, InboxRows, LeftCalls, Replay, Replayed, Resolution, Row, RowKind,
    RowResult, Transactions,
};
use uuid::Uuid;

use super::calling::{
    HOUR, answer, caller, failed, fetch, fetch_row, fetched, is_seen, resolve, store, store_for, take_for,
};
use super::stage::{LEASE, Stage};
use super::world::World;

/// A row that is restored from a backup has the key under which it was called since.
pub async fn a_key_is_stored_with_its_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for key in ["a", "many"] {
        store(&stage, key).await;
    }
    stage.schedule("ordinary").await;
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!(ordinary.provider_key, None);
    let provider_key = Uuid::new_v4();
    assert!(stage.store.record_result(&ordinary, &RowResult::LeftToCall { provider_key }).await.unwrap());
    let key_of = |row: &Row| (row.id, row.provider_key.unwrap());
    let mut stored: Vec<_> = stage.scheduled().await.iter().map(key_of).collect();
    let mut fetched: Vec<_> = fetch(&stage).await.iter().map(key_of).collect();
    stored.sort_unstable();
    fetched.sort_unstable();
    assert_eq!((stored.len(), &stored), (3, &fetched));
    assert!(stored.contains(&(ordinary.id, provider_key)));
    stored.dedup_by_key(|(_, provider_key)| *provider_key);
    assert_eq!(stored.len(), 3, "each has a key of its own");
    let mut txn = stage.begin().await;
    let removed = format!("UPDATE {} SET provider_key = NULL", stage.world.own("inbox_messages"));
    assert!(stage.execute(&mut txn, &removed).await.is_err(), "nobody removes it by hand");
    stage.store.rollback(txn).await.unwrap();
}

/// The time of the first call and the count are written by the fetch, before the call.
pub async fn a_call_is_written_before_it_is_made<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "a").await;
    let row = stage.one_scheduled().await;
    assert_eq!((row.calls, row.called_at, row.crash_count), (Some(0), None, 0));
    let row = fetch_row(&stage).await;
    assert_eq!((row.calls, row.crash_count, row.attempts), (Some(1), 0, 0));
    assert_eq!(row.locked_until.unwrap().duration_since(row.called_at.unwrap()).unwrap(), LEASE);
    let written = stage.one_scheduled().await;
    assert_eq!((written.locked_by, written.provider_key, written.calls), (row.locked_by, row.provider_key, Some(1)));
    assert!(row.provider_key.is_some() && written.called_at == row.called_at);
    assert!(fetch(&stage).await.is_empty(), "its lease has not ended");
    assert_eq!(stage.store.rows_by_token(row.locked_by.unwrap()).await.unwrap()[0].provider_key, row.provider_key);
}

/// By the fetch that has written its time, and not by a clock: a dead letter can be replayed at once.
pub async fn the_first_call_under_a_key_is_known<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let by_token = async |row: &Row| {
        let rows = stage.store.rows_by_token(row.locked_by.unwrap()).await.unwrap();
        rows.iter().map(|row| row.is_first_call).collect::<Vec<_>>()
    };
    let row = fetched(&stage).await;
    assert!(row.is_first_call);
    assert_eq!(by_token(&row).await, [true], "the fetch got no response");
    let dead = CallResult::dead(Reason::TooLarge, String::new());
    assert!(stage.store.record_result(&row, &RowResult::Called(dead.clone())).await.unwrap());
    assert!(!stage.one_dead().await.is_first_call);
    assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due);
    let row = fetch_row(&stage).await;
    assert!(!row.is_first_call);
    assert_eq!(by_token(&row).await, [false]);
    assert!(stage.store.date_call(&row, LEASE).await.unwrap().is_some());
    assert_eq!(by_token(&row).await, [true], "the provider knows of none");
    let unused = CallResult { is_unused: true, ..CallResult::snoozed(Duration::ZERO) };
    assert!(stage.store.record_result(&row, &RowResult::Called(unused.clone())).await.unwrap());
    let row = fetch_row(&stage).await;
    assert!(row.is_first_call);
    assert!(stage.store.record_result(&row, &RowResult::Called(CallResult::snoozed(Duration::ZERO))).await.unwrap());
    assert!(!fetch_row(&stage).await.is_first_call);
}

/// No other fetch finds it, whether it waits, is called, or was left by a process that ended.
pub async fn a_row_in_its_call_phase_is_fetched_for_its_call_only<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "many").await;
    assert!(!is_seen(&stage).await);
    for calls in 1..=12 {
        let row = fetch_row(&stage).await;
        assert_eq!(row.calls, Some(calls));
        stage.rows_earlier(HOUR).await;
        assert!(!is_seen(&stage).await, "{calls}");
    }
    let stats = stage.store.stats(&[stage.handler]).await.unwrap();
    assert_eq!(stats.scheduled, 1);
    assert!(stats.oldest_due.unwrap() > HOUR / 2);
    stage.schedule("ordinary").await;
    assert_eq!(fetch(&stage).await.len(), 1, "an ordinary row is not called for");
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.identity, stage.id("ordinary"));
}

/// Calls before it may have ended their processes.
pub async fn a_call_that_is_snoozed_leaves_out_only_itself<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "a").await;
    for calls in [1, 2, 3, 4] {
        let ended = fetch_row(&stage).await;
        assert_eq!(ended.calls, Some(calls));
        stage.rows_earlier(HOUR).await;
        let row = fetch_row(&stage).await;
        assert_eq!(row.calls, Some(calls + 1));
        assert!(
            stage.store.record_result(&row, &RowResult::Called(CallResult::snoozed(Duration::ZERO))).await.unwrap()
        );
    }
}

/// The row becomes an ordinary one, without failed attempts, and is called for no more.
pub async fn an_answer_makes_an_ordinary_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    assert!(stage.store.record_result(&row, &RowResult::Called(failed(Ok(Duration::ZERO)))).await.unwrap());
    let row = fetch_row(&stage).await;
    assert!(stage.store.record_result(&row, &RowResult::Called(CallResult::answered(answer()))).await.unwrap());
    assert!(!stage.store.record_result(&row, &RowResult::Called(CallResult::answered(answer()))).await.unwrap());
    assert!(fetch(&stage).await.is_empty());
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!((ordinary.answer.as_ref(), ordinary.provider_key), (Some(&answer()), row.provider_key));
    assert_eq!((ordinary.calls, ordinary.crash_count, ordinary.attempts), (None, 1, 0));
    // A failure of the completion keeps the answer.
    let result = RowResult::Failed { next: Ok(Duration::ZERO), error: "the handler failed".to_owned() };
    assert!(stage.store.record_result(&ordinary, &result).await.unwrap());
    assert!(fetch(&stage).await.is_empty());
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.answer, Some(answer()));
}

/// Otherwise another worker could call while the request is still on its way.
pub async fn a_call_in_doubt_leaves_its_lease_to_end<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    let doubt = CallResult { in_doubt: true, ..failed(Ok(Duration::ZERO)) };
    assert!(stage.store.record_result(&row, &RowResult::Called(doubt.clone())).await.unwrap());
    let left = stage.one_scheduled().await;
    assert_eq!((left.locked_by, Some(left.run_at), left.called_at), (None, row.locked_until, row.called_at));
    assert!(fetch(&stage).await.is_empty());
    stage.rows_earlier(LEASE).await;
    let row = fetch_row(&stage).await;
    let later = CallResult { in_doubt: true, ..failed(Ok(HOUR)) };
    assert!(stage.store.record_result(&row, &RowResult::Called(later.clone())).await.unwrap());
    assert!(stage.one_scheduled().await.run_at > row.locked_until.unwrap() + HOUR / 2, "the longer time counts");
}

/// A call that certainly had no effect leaves its key unused; the next one is the first.
pub async fn a_call_without_effect_leaves_its_key_unused<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let row = fetched(&stage).await;
    let unused = CallResult { is_unused: true, ..failed(Ok(Duration::ZERO)) };
    assert!(stage.store.record_result(&row, &RowResult::Called(unused.clone())).await.unwrap());
    let left = stage.one_scheduled().await;
    assert_eq!((left.called_at, left.provider_key, left.attempts, left.calls), (None, row.provider_key, 1, Some(0)));
    let again = fetch_row(&stage).await;
    assert_eq!((again.provider_key, again.calls), (row.provider_key, Some(1)));
    assert!(again.called_at.unwrap() >= row.called_at.unwrap());
    assert_eq!(again.locked_until.unwrap().duration_since(again.called_at.unwrap()).unwrap(), LEASE);
}

/// Calls that an outage has used up leave none for the questions behind it.
pub async fn the_first_question_that_fails_begins_the_attempts_anew<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let call = failed(Ok(Duration::ZERO));
    let question = CallResult { is_question: true, ..call.clone() };
    store(&stage, "a").await;
    for (result, attempts) in [(&call, 1), (&call, 2), (&question, 1), (&question, 2), (&call, 3), (&question, 4)] {
        let row = fetch_row(&stage).await;
        assert!(stage.store.record_result(&row, &RowResult::Called(result.clone())).await.unwrap());
        let left = stage.one_scheduled().await;
        assert_eq!((left.attempts, left.asked_at.is_some()), (attempts, row.asked_at.is_some() || result.is_question));
    }
    let row = fetch_row(&stage).await;
    assert!(stage.store.record_result(&row, &RowResult::Called(failed(Err(Reason::Exhausted)))).await.unwrap());
    assert!(resolve(&stage, &row, &Resolution::CallAgain).await);
    assert_eq!(stage.one_scheduled().await.asked_at, None, "nothing is known of the new key");
}

/// The provider knows of no call under the key. A row that is restored from an older backup has the key of the next one, too.
pub async fn a_call_that_is_dated_anew_keeps_its_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    fetched(&stage).await;
    stage.rows_earlier(HOUR).await;
    let row = fetch_row(&stage).await;
    assert!(stage.store.date_call(&row, 2 * LEASE).await.unwrap().is_some());
    let dated = stage.one_scheduled().await;
    assert_eq!((dated.provider_key, dated.locked_by), (row.provider_key, row.locked_by));
    assert_eq!(dated.locked_until.unwrap().duration_since(dated.called_at.unwrap()).unwrap(), 2 * LEASE);
    assert!(dated.called_at > row.called_at);
}

/// A local message, for example.
pub async fn an_ordinary_row_is_left_to_its_call<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    let left = RowResult::LeftToCall { provider_key: Uuid::new_v4() };
    assert!(stage.store.record_result(&row, &left).await.unwrap());
    assert!(!stage.store.record_result(&row, &left).await.unwrap());
    assert!(!is_seen(&stage).await);
    let row = fetch_row(&stage).await;
    assert_eq!((row.calls, row.crash_count, row.lost_connections, row.attempts), (Some(1), 0, 0, 0));
    // A holder from before refunds its start, and there is none.
    stage.store.record_result(&row, &RowResult::Refunded).await.unwrap();
    assert_eq!(stage.one_scheduled().await.calls, Some(1));
}

/// A version of the service that makes no call runs what was not called, and leaves the rest to one that makes it.
pub async fn rows_that_were_not_called_are_released<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let called = fetched(&stage).await;
    store(&stage, "many").await;
    let other = super::stage::register(&stage.store, "billing", "refunds").await;
    assert_eq!(stage.store.release_calls(&[other]).await.unwrap(), LeftCalls::default());
    assert_eq!(
        stage.store.release_calls(&[stage.handler, other]).await.unwrap(),
        LeftCalls { released: 1, in_doubt: 1 }
    );
    assert_eq!(stage.store.release_calls(&[stage.handler]).await.unwrap(), LeftCalls { released: 0, in_doubt: 1 });
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!((ordinary.identity.clone(), ordinary.calls, ordinary.called_at), (stage.id("many"), None, None));
    assert!(ordinary.provider_key.is_some(), "a version that makes the call goes on with its key");
    assert!(stage.store.record_result(&called, &RowResult::Called(CallResult::answered(answer()))).await.unwrap());
    assert_eq!(stage.store.release_calls(&[stage.handler]).await.unwrap(), LeftCalls::default());
}

/// The oldest rows come first, of all callers, no more than the limit, each with the lease of its caller.
pub async fn calls_are_fetched_by_their_limit<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = super::stage::register(&stage.store, "billing", "refunds").await;
    for key in ["a", "b", "c"] {
        store(&stage, key).await;
        stage.rows_earlier(Duration::from_secs(60)).await;
    }
    let callers = [caller(other), FetchFor { lease: 3 * LEASE, ..caller(stage.handler) }];
    let (token, two) = (Uuid::new_v4(), FetchLimit::rows(RowKind::Calling, 2));
    let fetched = stage.store.fetch(&callers, two, token).await.unwrap().rows;
    let mut ids: Vec<_> = fetched.iter().map(|row| row.identity.clone()).collect();
    ids.sort_by_key(|id| id.key.as_bytes().to_vec());
    assert_eq!(ids, [stage.id("a"), stage.id("b")]);
    assert!(fetched.iter().all(|row| row.locked_by == Some(token)));
    let lease =
        |row: &Row| row.locked_until.unwrap().duration_since(row.called_at.unwrap_or(SystemTime::UNIX_EPOCH)).unwrap();
    assert!(fetched.iter().all(|row| lease(row) == 3 * LEASE));
    assert!(take_for(&stage, &callers[..1], 2).await.is_empty(), "those of one caller");
}

/// A backlog of one handler keeps no row of another one waiting that is older.
pub async fn calls_of_all_handlers_are_fetched_by_their_age<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = super::stage::register(&stage.store, "billing", "refunds").await;
    let handlers = [other, stage.handler, other, stage.handler, stage.handler];
    for (n, handler) in handlers.into_iter().enumerate() {
        store_for(&stage, handler, &n.to_string()).await;
        stage.rows_earlier(Duration::from_secs(60)).await;
    }
    for callers in [[stage.handler, other], [other, stage.handler]] {
        let callers = callers.map(caller);
        let fetched = take_for(&stage, &callers, 2).await;
        let mut keys: Vec<String> = fetched.iter().map(|row| row.identity.key.to_string()).collect();
        keys.sort();
        let oldest = if callers[0].handler == other { ["2", "3"] } else { ["0", "1"] };
        assert_eq!(keys, oldest);
    }
}

/// Where a database has one writer, that wait can be longer than a call may take to begin.
pub async fn a_lease_of_a_call_begins_once_its_fetch_has_the_connection<W: World>(world: W) {
    let Some(stage) = Stage::new_if(!W::FEATURES.concurrent, world).await else { return };
    store(&stage, "a").await;
    let (held, callers) = (stage.begin().await, [caller(stage.handler)]);
    let mut fetch = pin!(stage.store.fetch(&callers, FetchLimit::rows(RowKind::Calling, 1), Uuid::new_v4()));
    // Nothing tells that it has come to that wait.
    let early = tokio::time::timeout(Duration::from_millis(300), fetch.as_mut()).await;
    assert!(early.is_err(), "it has a connection: {early:?}");
    let freed = Instant::now();
    stage.store.rollback(held).await.unwrap();
    let fetched = fetch.await.unwrap();
    assert!(fetched.since >= freed, "{:?} too early", freed - fetched.since);
    assert_eq!(fetched.rows.len(), 1);
}
