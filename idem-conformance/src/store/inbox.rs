//! Inbox rows: inserted, counted, fetched.

use std::collections::BTreeSet;
use std::time::{Duration, SystemTime};

use idem_core::store::{
    ClaimState, Consumers, DueRows, FetchFor, FetchLimit, Identity, InboxRows, LookBack, NewRow, RowKind, Stats,
    Transactions,
};
use idem_core::{Delivery, Reason};
use uuid::Uuid;

use super::stage::{LEASE, Stage, committed, register};
use super::world::{Setup, World};

const NOW: Result<Duration, Reason> = Ok(Duration::ZERO);

/// Inserting the same row again counts a delivery, whatever its state, and changes nothing else.
pub async fn inserting_twice_counts_a_delivery<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", Reason::Permanent).await;
    stage.row(&stage.id("a"), false, NOW).await;
    stage.row(&stage.id("a"), false, Err(Reason::Conflict)).await;
    let row = stage.one_dead().await;
    assert_eq!((row.id, row.deliveries, row.reason), (id, 3, Some(Reason::Permanent)));
    assert!(stage.scheduled().await.is_empty());
}

/// Another message under the same key is another row.
pub async fn another_fingerprint_is_another_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    stage.conflict("a", "another").await;
    stage.conflict("a", "yet another").await;
    assert_eq!((stage.scheduled().await.len(), stage.dead().await.len()), (1, 2));
}

/// Only scheduled and due rows of the given handlers are fetched.
pub async fn fetch_returns_what_is_due_for_these_handlers<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = register(&stage.store, "billing", "order_shipped").await;
    stage.schedule("due").await;
    stage.row(&stage.id("later"), true, Ok(Duration::from_secs(3600))).await;
    stage.dead_letter("dead", Reason::Permanent).await;
    stage.row(&Identity { handler: other, ..stage.id("of another") }, true, NOW).await;

    let nine = FetchLimit::rows(RowKind::Ordinary, 9);
    assert!(stage.store.fetch(&[], nine, Uuid::new_v4()).await.unwrap().rows.is_empty());
    assert_eq!(stage.fetch_row(RowKind::Ordinary).await.identity, stage.id("due"));
    assert!(stage.fetch(RowKind::Ordinary).await.is_empty());
    let both = [stage.handler, other].map(|handler| FetchFor::new(handler, LEASE));
    let rows = stage.store.fetch(&both, nine, Uuid::new_v4()).await.unwrap().rows;
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].identity.handler, rows[0].handler.as_str()), (other, "order_shipped"));
}

/// The limit applies to all handlers together.
pub async fn fetch_returns_no_more_than_the_limit<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = register(&stage.store, "billing", "order_shipped").await;
    for n in 0..4 {
        stage.schedule(&n.to_string()).await;
        stage.row(&Identity { handler: other, ..stage.id(&n.to_string()) }, true, NOW).await;
    }
    for expected in [3, 3, 2, 0] {
        let both = [stage.handler, other].map(|handler| FetchFor::new(handler, LEASE));
        let three = FetchLimit::rows(RowKind::Ordinary, 3);
        let rows = stage.store.fetch(&both, three, Uuid::new_v4()).await.unwrap().rows;
        assert_eq!(rows.len(), expected);
    }
    assert!(stage.take_at_most(FetchLimit::rows(RowKind::Ordinary, 0)).await.is_empty());
}

/// A row may be large: a fetch stops after the row that reaches the limit, and returns a larger row by itself.
pub async fn fetch_is_bounded_in_bytes<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (key, bytes) in [("a", 100_000), ("b", 100_000), ("c", 900_000), ("d", 10), ("e", 10)] {
        let (identity, delivery) = (stage.id(key), Delivery::new("orders", vec![b'x'; bytes]));
        let mut txn = stage.begin().await;
        let row = NewRow::new(&identity, &delivery, NOW);
        stage.store.insert(&mut txn, &[row]).await.unwrap();
        committed(stage.commit(txn).await);
        stage.rows_earlier(Duration::from_secs(1)).await;
    }
    for expected in [&["a", "b"][..], &["c"], &["d", "e"], &[]] {
        let mut limit = FetchLimit::rows(RowKind::Ordinary, 9);
        limit.bytes = 150_000;
        let rows = stage.take_at_most(limit).await;
        let mut keys: Vec<_> = rows.iter().map(|row| row.identity.key.to_string()).collect();
        keys.sort();
        assert_eq!(keys, expected);
    }
}

/// A fetched row carries the token, a start and a lease, as it does in the database.
pub async fn fetch_counts_a_start_and_sets_token_and_lease<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let before = stage.one_scheduled().await;
    assert_eq!((before.locked_by, before.crash_count, before.attempts, before.lost_connections), (None, 0, 0, 0));
    let (handlers, token) = ([FetchFor::new(stage.handler, LEASE)], Uuid::new_v4());
    let fetched =
        stage.store.fetch(&handlers, FetchLimit::rows(RowKind::Ordinary, 1), token).await.unwrap().rows.remove(0);
    let stored = stage.one_scheduled().await;
    for row in [&fetched, &stored] {
        assert_eq!((row.locked_by, row.crash_count, row.attempts, row.lost_connections), (Some(token), 1, 0, 0));
        let lease = row.locked_until.unwrap().duration_since(before.run_at).unwrap();
        assert!((LEASE..LEASE * 3).contains(&lease), "the lease ends {lease:?} after the row was due");
        assert_eq!((&row.identity, row.id, row.delivery.attempt()), (&stage.id("a"), before.id, 1));
    }
}

/// However many fetches run at once, each row is fetched once.
pub async fn two_fetches_never_share_a_row<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let other = stage.world.store(Setup::default()).await.unwrap();
    for n in 0..40 {
        stage.schedule(&n.to_string()).await;
    }
    let fetch = |n: usize| {
        let store = if n < 3 { stage.store.clone() } else { other.clone() };
        let (handlers, three) = ([FetchFor::new(stage.handler, LEASE)], FetchLimit::rows(RowKind::Ordinary, 3));
        tokio::spawn(async move {
            let mut ids = Vec::new();
            loop {
                let rows = store.fetch(&handlers, three, Uuid::new_v4()).await.unwrap().rows;
                if rows.is_empty() {
                    return ids;
                }
                ids.extend(rows.into_iter().map(|row| row.id));
            }
        })
    };
    let fetched = futures_util::future::join_all((0..6).map(fetch)).await;
    let fetched = fetched.into_iter().flat_map(Result::unwrap).collect::<Vec<_>>();
    let distinct = fetched.iter().collect::<BTreeSet<_>>();
    // A fetch that found all remaining rows locked returned early, so some rows may remain.
    let left = stage.fetch(RowKind::Ordinary).await;
    assert_eq!(distinct.len(), fetched.len());
    assert_eq!(fetched.len() + left.len(), 40);
}

/// A row that was not begun within the lease can be fetched again, under another token.
pub async fn a_fetched_row_is_due_again_after_its_lease<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let first = stage.fetch_row(RowKind::Ordinary).await;
    assert!(stage.fetch(RowKind::Orphan).await.is_empty(), "not before the lease has ended");
    stage.end_leases().await;
    let second = stage.fetch_row(RowKind::Orphan).await;
    assert_eq!((second.id, second.crash_count), (first.id, 2));
    assert_ne!(second.locked_by, first.locked_by);
}

/// A fetch whose reply was lost is found by its token.
pub async fn rows_by_token_finds_what_a_fetch_has_fetched<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for key in ["a", "b", "c"] {
        stage.schedule(key).await;
    }
    let (handlers, token) = ([FetchFor::new(stage.handler, LEASE)], Uuid::new_v4());
    let rows = stage.store.fetch(&handlers, FetchLimit::rows(RowKind::Ordinary, 2), token).await.unwrap().rows;
    let found = stage.store.rows_by_token(token).await.unwrap();
    let ids = |rows: &[idem_core::store::Row]| rows.iter().map(|row| row.id).collect::<BTreeSet<_>>();
    assert_eq!((rows.len(), ids(&found)), (2, ids(&rows)));
    assert!(found.iter().all(|row| row.locked_by == Some(token) && row.crash_count == 1));
    assert!(stage.store.rows_by_token(Uuid::new_v4()).await.unwrap().is_empty());
}

/// The lease covers only the wait before the start: a running row is locked, so `fetch`, `poll_due` and
/// `dead_letter_crashed` skip it.
pub async fn a_row_that_runs_is_not_fetched_after_its_lease<W: World>(world: W) {
    let Some(stage) = Stage::new_if(W::FEATURES.concurrent, world).await else { return };
    stage.schedule("a").await;
    stage.fetch_row(RowKind::Ordinary).await;
    stage.rows_earlier(LEASE * 10).await;
    let row = stage.fetch_row(RowKind::Orphan).await;
    stage.rows_earlier(LEASE * 10).await;
    let inbox = stage.world.own("inbox_messages");
    // One that may be started again, and one that has used up its starts.
    for starts in [2, 4] {
        stage.world.run(&format!("UPDATE {inbox} SET crash_count = {starts}")).await;
        let running = stage.started(&row).await;

        assert!(stage.fetch(RowKind::Orphan).await.is_empty() && stage.fetch(RowKind::Alone).await.is_empty());
        assert!(stage.fetch(RowKind::Ordinary).await.is_empty());
        assert_eq!(stage.store.dead_letter_crashed(&[stage.handler], LEASE).await.unwrap().len(), 0);
        let due = stage.store.poll_due(&[stage.handler], LEASE, LookBack::default()).await.unwrap();
        assert_eq!(due, DueRows::default(), "what runs is nothing to be done");
        stage.store.rollback(running).await.unwrap();
    }
    assert_eq!(stage.store.dead_letter_crashed(&[stage.handler], LEASE).await.unwrap().len(), 1);
}

/// Removing a row does not process it: the claim stays unchanged.
pub async fn remove_leaves_claims_alone<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let row = stage.fetch_row(RowKind::Ordinary).await;
    let mut stale = row.clone();
    stale.locked_by = Some(Uuid::new_v4());
    for (row, expected) in [(&stale, false), (&row, true), (&row, false)] {
        let mut txn = stage.begin().await;
        assert_eq!(stage.store.start(&mut txn, &[row], ClaimState::Waiting).await.unwrap(), [expected]);
        committed(stage.commit(txn).await);
    }
    assert!(stage.scheduled().await.is_empty());
    assert!(stage.is_waiting("a").await);
}

/// Polling reports what a fetch would find.
pub async fn poll_due_reports_pending_work<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let found = async || stage.store.poll_due(&[stage.handler], LEASE, LookBack::default()).await.unwrap();
    assert_eq!(found().await, DueRows::default());
    stage.row(&stage.id("later"), true, Ok(Duration::from_secs(3600))).await;
    stage.dead_letter("dead", Reason::Permanent).await;
    assert_eq!(found().await, DueRows::default());
    stage.schedule("a").await;
    assert_eq!(found().await, DueRows { ordinary: true, ..DueRows::default() });
    let other = register(&stage.store, "billing", "order_shipped").await;
    assert_eq!(stage.store.poll_due(&[other], LEASE, LookBack::default()).await.unwrap(), DueRows::default());

    stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!(found().await, DueRows::default());
    let inbox = stage.world.own("inbox_messages");
    let due = async |starts: u32, since: Duration| {
        let earlier = W::earlier("created_at", since);
        stage
            .world
            .run(&format!("UPDATE {inbox} SET crash_count = {starts}, locked_until = {earlier} WHERE crash_count > 0"))
            .await;
    };
    due(1, Duration::from_secs(1)).await;
    assert_eq!(found().await, DueRows { orphan: true, ..DueRows::default() });
    due(3, Duration::from_secs(1)).await;
    assert_eq!(found().await, DueRows { alone: true, ..DueRows::default() });
    due(4, LEASE).await;
    assert_eq!(found().await, DueRows::default(), "its last lease may be somebody's who still runs");
    due(4, LEASE * 4).await;
    assert_eq!(found().await, DueRows { crashed: true, ..DueRows::default() });
}

/// Reports how many rows are scheduled and dead, and for how long the oldest due one has waited.
pub async fn stats_count_rows<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let stats = async || stage.store.stats(&[stage.handler]).await.unwrap();
    assert_eq!(stats().await, Stats::default());
    stage.row(&stage.id("later"), true, Ok(Duration::from_secs(3600))).await;
    stage.dead_letter("x", Reason::Permanent).await;
    stage.dead_letter("y", Reason::Permanent).await;
    let now = stats().await;
    assert_eq!((now.scheduled, now.dead, now.oldest_due), (1, 2, None));
    stage.schedule("orphan").await;
    // Its process ends.
    stage.fetch_row(RowKind::Ordinary).await;
    stage.schedule("due").await;
    stage.rows_earlier(Duration::from_secs(60)).await;
    let stats = stats().await;
    assert_eq!((stats.scheduled, stats.dead), (3, 2));
    let due = stats.oldest_due.unwrap();
    assert!((Duration::from_secs(59)..Duration::from_secs(120)).contains(&due), "{due:?}");
    let created = stage.scheduled().await[0].created_at;
    let apart = SystemTime::now().duration_since(created).unwrap_or_else(|early| early.duration());
    assert!(apart < Duration::from_secs(60), "the clocks of database and test are {apart:?} apart");
}
