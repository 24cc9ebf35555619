//! The operator's calls: list, replay, discard.

use idem_core::operator::{Filter, Operator, Page};
use idem_core::store::{ClaimState, Identity, InboxRows, Replay, Replayed, Resolution, RowKind, Transactions};
use idem_core::{Fingerprint, Key, Reason};

use super::stage::{Stage, committed, register};
use super::world::World;

/// By state, handler, reason and consumer.
pub async fn the_list_is_filtered<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let shipped = register(&stage.store, "billing", "order_shipped").await;
    let elsewhere = register(&stage.store, "shipping", "order_paid").await;
    stage.schedule("scheduled").await;
    stage.dead_letter("permanent", Reason::Permanent).await;
    stage.dead_letter("exhausted", Reason::Exhausted).await;
    stage.row(&Identity { handler: shipped, ..stage.id("shipped") }, true, Err(Reason::Permanent)).await;
    stage.row(&Identity { handler: elsewhere, ..stage.id("elsewhere") }, true, Err(Reason::Permanent)).await;

    let list = async |filter: Filter| {
        let rows = stage.list(&filter).await;
        rows.into_iter().map(|row| row.identity.key.to_string()).collect::<Vec<_>>()
    };
    let all = Filter::default();
    assert_eq!(list(all.clone()).await, ["shipped", "exhausted", "permanent"]);
    assert_eq!(list(all.clone().scheduled()).await, ["scheduled"]);
    assert_eq!(list(all.clone().handler("order_paid")).await, ["exhausted", "permanent"]);
    assert_eq!(list(all.clone().reason(Reason::Permanent)).await, ["shipped", "permanent"]);
    let both = all.clone().handler("order_paid").reason(Reason::Permanent);
    assert_eq!(list(both).await, ["permanent"]);
    assert_eq!(list(all.clone().handler("nobody")).await, [""; 0]);
    let rows = Operator::new(&stage.store).consumer("shipping").list(&all, Page::default()).await.unwrap().rows;
    assert_eq!((rows.len(), rows[0].handler.as_str()), (1, "order_paid"));
}

/// Newest first, page by page, without duplicates or gaps.
pub async fn the_list_comes_in_pages_newest_first<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for n in 0..7 {
        stage.dead_letter(&n.to_string(), Reason::Permanent).await;
    }
    let (mut page, mut pages) = (Page::new(3), Vec::new());
    loop {
        let rows = Operator::new(&stage.store).consumer("billing").list(&Filter::default(), page).await.unwrap().rows;
        let Some(last) = rows.last() else { break };
        page = page.before(last.id);
        pages.push(rows.iter().map(|row| row.identity.key.to_string()).collect::<Vec<_>>().join(""));
    }
    assert_eq!(pages, ["654", "321", "0"]);
}

/// Dead to scheduled: due now, without start, token or reason. The claim exists throughout.
pub async fn replay_makes_a_dead_row_due<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", Reason::Exhausted).await;
    assert_eq!(stage.replay(id, Replay::Plain).await, Replayed::Due);
    assert!(!stage.claim_now(&stage.id("a")).await.is_new());
    let row = stage.one_scheduled().await;
    assert_eq!((row.id, row.reason, row.died_at, row.locked_by, row.crash_count), (id, None, None, None, 0));
    let row = stage.fetch_row(RowKind::Ordinary).await;
    committed(stage.commit(stage.started(&row).await).await);
    assert!(stage.is_dated("a").await);
}

/// A replayed row is no longer dead; scheduled rows, rows of another consumer and missing rows are not found.
pub async fn replay_finds_dead_rows_only<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", Reason::Exhausted).await;
    assert_eq!(stage.replay_of("shipping", id, Replay::Forced).await, Replayed::NotFound);
    assert_eq!(stage.replay(id + 1000, Replay::Forced).await, Replayed::NotFound);
    assert_eq!(stage.replay(id, Replay::Plain).await, Replayed::Due);
    let fetched = stage.fetch_row(RowKind::Ordinary).await;
    for how in [Replay::Plain, Replay::Forced] {
        assert_eq!(stage.replay(id, how).await, Replayed::NotFound);
    }
    assert_eq!(stage.one_scheduled().await.locked_by, fetched.locked_by, "a row that runs is left alone");
}

/// Its effects may already exist.
pub async fn replay_of_what_its_handler_committed_needs_force<W: World>(world: W) {
    needs_force(world, Reason::Committed).await;
}

/// It may have been processed.
pub async fn replay_of_what_is_too_old_needs_force<W: World>(world: W) {
    needs_force(world, Reason::TooOld).await;
}

async fn needs_force<W: World>(world: W, reason: Reason) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", reason).await;
    assert_eq!(stage.replay(id, Replay::Plain).await, Replayed::NeedsForce);
    assert_eq!(stage.one_dead().await.reason, Some(reason));
    assert_eq!(stage.replay(id, Replay::Forced).await, Replayed::Due);
    stage.fetch_row(RowKind::Ordinary).await;
}

/// Its key belongs to another message, and `force` does not change that.
pub async fn replay_of_a_conflict_needs_a_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let id = stage.conflict("a", "another").await;
    for how in [Replay::Plain, Replay::Forced] {
        assert_eq!(stage.replay(id, how).await, Replayed::NeedsKey);
    }
    assert_eq!(stage.one_dead().await.reason, Some(Reason::Conflict));
    assert!(stage.is_dated("a").await);
}

/// A message that ended a process or a connection is not run concurrently with others when it is replayed.
pub async fn a_replayed_crash_runs_as_an_orphan<W: World>(world: W) {
    let stage = Stage::new(world).await;
    for (key, reason) in [("a", Reason::Crashed), ("b", Reason::BrokeConnection)] {
        let id = stage.dead_letter(key, reason).await;
        assert_eq!(stage.replay(id, Replay::Plain).await, Replayed::Due);
        let row = stage.one_scheduled().await;
        assert_eq!((row.crash_count, row.locked_by), (0, None));
        assert!(stage.fetch(RowKind::Ordinary).await.is_empty(), "{reason}");
        let row = stage.fetch_row(RowKind::Orphan).await;
        assert_eq!(row.crash_count, 1, "{reason}");
        committed(stage.commit(stage.started(&row).await).await);
    }
}

/// The new key is claimed for the conflict, and the first message keeps its key.
pub async fn replay_as_moves_a_conflict_to_another_key<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    let id = stage.conflict("a", "another").await;
    let key = Key::of("a-2").unwrap();
    assert_eq!(stage.replay_of("shipping", id, Replay::As(&key)).await, Replayed::NotFound);
    assert_eq!(stage.replay(id, Replay::As(&key)).await, Replayed::Due);
    let existing_claim = stage.existing_claim("a-2").await.unwrap();
    assert_eq!((existing_claim.fingerprint, existing_claim.age), (Fingerprint::of(b"another"), None));
    assert_eq!(stage.existing_claim("a").await.unwrap().fingerprint, Fingerprint::of(b"a"));
    assert!(stage.is_dated("a").await);

    assert_eq!(stage.replay(id, Replay::As(&key)).await, Replayed::NotFound);
    let row = stage.fetch_row(RowKind::Ordinary).await;
    assert_eq!((row.id, row.reason, row.identity.clone()), (id, None, stage.message("a-2", "another")));
    committed(stage.commit(stage.started(&row).await).await);
    assert!(stage.is_dated("a-2").await);
}

/// A key that belongs to another message, processed or waiting, is refused.
pub async fn replay_as_is_refused_if_the_key_is_taken<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.process("a").await;
    stage.process("b").await;
    stage.schedule("c").await;
    let id = stage.conflict("a", "another").await;
    for used in ["a", "b", "c"] {
        let key = Key::of(used).unwrap();
        assert_eq!(stage.replay(id, Replay::As(&key)).await, Replayed::KeyTaken);
    }
    assert_eq!(stage.one_dead().await.identity, stage.message("a", "another"));
    assert_eq!(stage.scheduled().await.len(), 1);
}

/// The message will never run: its claim is dated, so that late copies are duplicates and prune can delete it.
pub async fn discard_dates_the_claim_that_the_row_owned<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let id = stage.dead_letter("a", Reason::Exhausted).await;
    stage.dead_letter("b", Reason::Exhausted).await;
    assert!(stage.discard(id).await);
    assert!(stage.is_dated("a").await);
    assert!(stage.is_waiting("b").await);
    assert_eq!(stage.one_dead().await.identity, stage.id("b"));
    // The second discard dates nothing, even if the claim is waiting again.
    let claims = stage.world.own("processed_messages");
    stage.world.run(&format!("UPDATE {claims} SET processed_at = NULL")).await;
    assert!(!stage.discard(id).await);
    assert!(stage.is_waiting("a").await);
}

/// The claim of its key belongs to the first message, which may still be waiting.
pub async fn discard_of_a_conflict_leaves_the_claim_alone<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let id = stage.conflict("a", "another").await;
    assert!(stage.discard(id).await);
    assert!(stage.dead().await.is_empty());
    assert!(stage.is_waiting("a").await);
    assert_eq!(stage.one_scheduled().await.identity, stage.id("a"));
}

/// It never had a claim.
pub async fn discard_of_a_row_without_a_key_leaves_claims_alone<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let claimless = |payload: &str| Identity { key: Key::empty(), ..stage.message("unused", payload) };
    stage.row(&claimless("x"), false, Err(Reason::Undecodable)).await;
    stage.row(&claimless("y"), false, Err(Reason::Undecodable)).await;
    stage.row(&claimless("x"), false, Err(Reason::Undecodable)).await;
    let dead = stage.dead().await;
    assert_eq!(dead.iter().map(|row| row.deliveries).collect::<Vec<_>>(), [1, 2], "known by the payload's hash");
    assert!(dead.iter().all(|row| row.identity.key.as_bytes().is_empty()));
    assert!(stage.discard(dead[0].id).await);
    assert_eq!(stage.dead().await.len(), 1);
    assert!(stage.is_waiting("a").await);
    // A replayed row can be fetched and removed.
    assert_eq!(stage.replay(dead[1].id, Replay::Plain).await, Replayed::Due);
    let rows = stage.fetch(RowKind::Ordinary).await;
    let row = rows.iter().find(|row| row.id == dead[1].id).unwrap();
    let mut txn = stage.begin().await;
    assert_eq!(stage.store.start(&mut txn, &[row], ClaimState::Waiting).await.unwrap(), [true]);
    committed(stage.commit(txn).await);
}

/// A scheduled row may be running now, and rows of other consumers are not touched.
pub async fn discard_finds_dead_rows_of_the_consumer_only<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    let scheduled = stage.one_scheduled().await.id;
    assert!(!stage.discard(scheduled).await);
    let fetched = stage.fetch(RowKind::Ordinary).await;
    assert!(!stage.discard(fetched[0].id).await);
    let dead = stage.dead_letter("b", Reason::Permanent).await;
    assert!(!stage.resolve_of("shipping", dead, None, &Resolution::Discard).await);
    assert!(stage.is_waiting("a").await && stage.is_waiting("b").await);
    assert_eq!((stage.scheduled().await.len(), stage.dead().await.len()), (1, 1));

    let mut txn = stage.begin().await;
    let claimed = stage.store.claim(&mut txn, &[&stage.id("b")], ClaimState::Waiting).await.unwrap();
    assert!(!claimed[0].is_new());
    stage.store.rollback(txn).await.unwrap();
    assert_eq!(stage.scheduled().await[0].locked_until, fetched[0].locked_until);
}
