//! Pruning: only what is dated, old, and has no inbox row.

use std::time::Duration;

use idem_core::store::{Claimed, Pruned};
use idem_core::{Key, Reason, Store};

use super::{Setup, Stage, World, committed};

const RETENTION: Duration = Duration::from_secs(3600);

async fn stage<W: World>(world: W) -> Stage<W> {
    Stage::with(world, Setup { retention: Some(RETENTION), ..Setup::default() }).await
}

fn pruned(claims: u64) -> Pruned {
    Pruned { claims, elsewhere: false }
}

/// What is older than the retention goes, and what waits never does.
pub async fn prune_deletes_old_dated_claims_only<W: World>(world: W) {
    let stage = stage(world).await;
    assert_eq!(stage.store.prune().await.unwrap(), pruned(0));
    stage.process("old").await;
    stage.process("old too").await;
    stage.park("parked").await;
    stage.bury("dead", Reason::Exhausted).await;
    stage.claims_earlier(RETENTION * 2).await;
    stage.process("fresh").await;
    stage.claims_earlier(RETENTION / 2).await;

    assert_eq!(stage.store.prune().await.unwrap(), pruned(2));
    assert_eq!(stage.claim_now(&stage.id("old")).await, Claimed::New);
    for key in ["parked", "dead", "fresh"] {
        assert_eq!(stage.claim_now(&stage.id(key)).await, Claimed::Found, "{key}");
    }
    assert_eq!(stage.store.prune().await.unwrap(), pruned(0));
}

/// A conflict stands beside a dated claim, which tells what it conflicts with.
pub async fn prune_never_deletes_a_claim_with_a_row<W: World>(world: W) {
    let stage = stage(world).await;
    stage.process("a").await;
    let id = stage.conflict("a", "another").await;
    stage.claims_earlier(RETENTION * 2).await;
    assert_eq!(stage.store.prune().await.unwrap(), pruned(0));
    assert!(stage.store.discard("billing", id).await.unwrap());
    assert_eq!(stage.store.prune().await.unwrap(), pruned(1));
}

/// Whoever has read a claim, to write a conflict beside it, finds it until it has committed; prune does not wait.
pub async fn prune_skips_a_claim_that_is_being_read<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        return;
    }
    let stage = stage(world).await;
    stage.process("a").await;
    stage.process("b").await;
    stage.claims_earlier(RETENTION * 2).await;
    let mut reader = stage.begin().await;
    assert!(stage.store.standing(&mut reader, stage.handler, &Key::of("a").unwrap()).await.unwrap().is_some());
    assert_eq!(stage.store.prune().await.unwrap(), pruned(1));
    committed(stage.commit(reader).await);
    assert_eq!(stage.store.prune().await.unwrap(), pruned(1));
}

/// One pruner works at a time; the others say so at once, and together they delete each claim once.
pub async fn pruners_do_not_meet<W: World>(world: W) {
    let stage = stage(world).await;
    for n in 0..60 {
        stage.process(&n.to_string()).await;
    }
    stage.claims_earlier(RETENTION * 2).await;
    let mut stores = vec![stage.store.clone()];
    for _ in 0..3 {
        stores.push(stage.world.store(Setup { retention: Some(RETENTION), ..Setup::default() }).await.unwrap());
    }
    let all = futures_util::future::join_all(stores.iter().map(Store::prune)).await;
    let all = all.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(all.iter().map(|pruned| pruned.claims).sum::<u64>(), 60, "{all:?}");
    assert!(all.iter().all(|pruned| !pruned.elsewhere || pruned.claims == 0), "{all:?}");
    assert_eq!(stage.store.prune().await.unwrap(), pruned(0), "the lock is free again");
}
