//! Pruning: only what is dated, old, and has no inbox row.

use std::time::{Duration, SystemTime};

use idem_core::store::{Claimed, Promise, Pruned};
use idem_core::{Key, Reason, Store};

use super::stage::register;
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
    // No row stands beside it, so that nothing but its missing date keeps it.
    let mut txn = stage.begin().await;
    stage.store.claim(&mut txn, &stage.id("waiting"), Promise::Waiting).await.unwrap();
    committed(stage.commit(txn).await);
    stage.claims_earlier(RETENTION * 2).await;
    stage.process("fresh").await;
    stage.claims_earlier(RETENTION / 2).await;

    assert_eq!(stage.store.prune().await.unwrap(), pruned(2));
    assert_eq!(stage.claim_now(&stage.id("old")).await, Claimed::New);
    for key in ["parked", "dead", "waiting", "fresh"] {
        assert_eq!(stage.claim_now(&stage.id(key)).await, Claimed::Found, "{key}");
    }
    assert_eq!(stage.store.prune().await.unwrap(), pruned(0));
}

/// Where the newest of the claims that went was dated, which is further back than the retention; not less after a prune of
/// older ones, and of this handler only.
pub async fn prune_tells_how_far_it_went<W: World>(world: W) {
    let stage = stage(world).await;
    assert_eq!(stage.store.retention(), RETENTION);
    let other = register(&stage.store, "billing", "order_shipped").await;
    let through = async |handler| {
        let mut txn = stage.begin().await;
        let through = stage.store.pruned_through(&mut txn, handler).await.unwrap();
        stage.store.rollback(txn).await.unwrap();
        through.map(|through| SystemTime::now().duration_since(through).unwrap_or_default())
    };
    assert_eq!(through(stage.handler).await, None);
    stage.process("older").await;
    stage.claims_earlier(RETENTION).await;
    stage.process("old").await;
    stage.claims_earlier(RETENTION * 2).await;
    stage.process("fresh").await;
    assert_eq!(stage.store.prune().await.unwrap(), pruned(2));
    let around = |age: Duration| age.abs_diff(RETENTION * 2) < Duration::from_secs(60);
    let age = through(stage.handler).await.unwrap();
    assert!(around(age), "{age:?}");
    assert_eq!(through(other).await, None);

    stage.claims_earlier(RETENTION * 9).await;
    assert_eq!(stage.store.prune().await.unwrap(), pruned(1));
    let age = through(stage.handler).await.unwrap();
    assert!(around(age), "{age:?}");
}

/// A statement of its own: what was pruned while the claim was made is seen.
pub async fn how_far_it_went_is_read_as_it_is_behind_the_claim<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        return;
    }
    let stage = stage(world).await;
    stage.process("old").await;
    stage.claims_earlier(RETENTION * 2).await;
    let mut txn = stage.claimed(&stage.id("new")).await;
    assert_eq!(stage.store.pruned_through(&mut txn, stage.handler).await.unwrap(), None);
    assert_eq!(stage.store.prune().await.unwrap(), pruned(1));
    assert!(stage.store.pruned_through(&mut txn, stage.handler).await.unwrap().is_some());
    committed(stage.commit(txn).await);
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
