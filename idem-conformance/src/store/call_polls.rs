//! How far back a fetch of calls searches, and since when the lease of a call counts.

use std::pin::pin;
use std::time::{Duration, Instant};

use idem_core::Reason;
use idem_core::store::{
    CallResult, FetchLimit, InboxRows, Replay, Replayed, Resolution, Row, RowKind, RowResult, Transactions,
};
use uuid::Uuid;

use super::calling::{HOUR, caller, fetch, fetched, resolve, store};
use super::stage::{LEASE, Stage};
use super::world::World;

const MINUTE: Duration = Duration::from_secs(60);

/// Fetches the calls that became due within the last minute. A store that needs no bound fetches all.
async fn fetch_recent<W: World>(stage: &Stage<W>) -> Vec<Row> {
    let mut limit = FetchLimit::rows(RowKind::Calling, 100);
    limit.since = Some(MINUTE);
    stage.store.fetch(&[caller(stage.handler)], limit, Uuid::new_v4()).await.unwrap().rows
}

/// A bound may leave out what was due before it, and never what became due since. A fetch without one leaves out nothing.
pub async fn a_bound_leaves_out_no_call_that_became_due_since<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "old").await;
    stage.rows_earlier(HOUR).await;
    store(&stage, "new").await;
    let recent = fetch_recent(&stage).await;
    assert!(recent.iter().any(|row| row.identity == stage.id("new")), "{recent:?}");
    let all = [recent, fetch(&stage).await].concat();
    assert_eq!(all.len(), 2, "{all:?}");
    for row in &all {
        let waited = if row.identity == stage.id("old") { HOUR } else { Duration::ZERO };
        assert!((waited..waited + MINUTE).contains(&row.waited.unwrap()), "{row:?}");
    }
}

/// A row that is made due is due from now on, however long ago it was due before: a worker that has looked since finds it.
pub async fn a_call_that_is_made_due_is_within_the_bound<W: World>(world: W) {
    let stage = Stage::new(world).await;
    store(&stage, "a").await;
    for makes_due in ["a result", "a replay", "a resolution"] {
        let row = fetch_recent(&stage).await.remove(0);
        let result = match makes_due {
            "a result" => CallResult::snoozed(Duration::ZERO),
            "a replay" => CallResult::dead(Reason::TooLarge, String::new()),
            _ => CallResult::dead(Reason::Unresolved, String::new()),
        };
        stage.rows_earlier(HOUR).await;
        assert!(stage.store.record_result(&row, &RowResult::Called(result.clone())).await.unwrap());
        if result.next.is_err() {
            stage.rows_earlier(HOUR).await;
        }
        match makes_due {
            "a result" => {}
            "a replay" => {
                assert_eq!(stage.replay(row.id, Replay::Plain).await, Replayed::Due)
            }
            _ => assert!(resolve(&stage, &row, &Resolution::CallAgain).await),
        }
        let due = stage.one_scheduled().await.run_at;
        assert!(due > row.locked_until.unwrap() - MINUTE, "{makes_due} has left it due since {due:?}");
    }
    assert_eq!(fetch_recent(&stage).await.len(), 1);
    stage.schedule("ordinary").await;
    stage.rows_earlier(HOUR).await;
    let ordinary = stage.fetch_row(RowKind::Ordinary).await;
    assert!(
        stage.store.record_result(&ordinary, &RowResult::LeftToCall { provider_key: Uuid::new_v4() }).await.unwrap()
    );
    assert!(fetch_recent(&stage).await.iter().any(|row| row.id == ordinary.id));
}

/// As that of a fetch: the call that follows a question loses nothing by the wait.
pub async fn a_renewed_lease_of_a_call_begins_once_it_has_the_connection<W: World>(world: W) {
    let Some(stage) = Stage::new_if(!W::FEATURES.concurrent, world).await else { return };
    let row = fetched(&stage).await;
    let held = stage.begin().await;
    let mut dated = pin!(stage.store.date_call(&row, LEASE));
    // Nothing tells that it has come to that wait.
    let early = tokio::time::timeout(Duration::from_millis(300), dated.as_mut()).await;
    assert!(early.is_err(), "it has a connection: {early:?}");
    let freed = Instant::now();
    stage.store.rollback(held).await.unwrap();
    let since = dated.await.unwrap().unwrap();
    assert!(since >= freed, "{:?} too early", freed - since);
}
