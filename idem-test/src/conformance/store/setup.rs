//! Tables, handlers, connections.

use futures_util::future::join_all;
use idem_core::store::Identity;
use idem_core::{Reason, Store};

use super::stage::register;
use super::{Setup, Stage, World};

/// A name has one number, in the order in which it was asked for, now and later.
pub async fn register_is_stable<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let names = ["", "order_paid", "order shipped '\"\u{e4}"];
    let first = stage.store.register("billing", &names).await.unwrap();
    assert_eq!(first[1], stage.handler);
    assert!(first[0] != first[1] && first[1] != first[2] && first[0] != first[2]);
    let other = stage.world.store(Setup::default()).await.unwrap();
    let backwards = [names[2], names[1], names[0]];
    assert_eq!(other.register("billing", &backwards).await.unwrap(), [first[2], first[1], first[0]]);
    let elsewhere = other.register("shipping", &names).await.unwrap();
    assert!(elsewhere.iter().all(|id| !first.contains(id)), "another consumer's handlers are others");
    assert!(other.register("billing", &[]).await.unwrap().is_empty());
}

/// Workers that start at once agree.
pub async fn concurrent_registration_agrees<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let mut stores = Vec::new();
    for _ in 0..8 {
        stores.push(stage.world.store(Setup::default()).await.unwrap());
    }
    let all = join_all(stores.iter().map(|store| store.register("new", &["a", "b", "c"]))).await;
    let all = all.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert!(all.iter().all(|ids| *ids == all[0] && ids.len() == 3), "{all:?}");
}

/// A worker refuses to leave rows behind that nobody would run, so it asks for their handlers.
pub async fn waiting_lists_handlers_with_rows<W: World>(world: W) {
    let stage = Stage::new(world).await;
    assert!(stage.store.waiting("billing").await.unwrap().is_empty());
    let dead = register(&stage.store, "billing", "with a dead row").await;
    register(&stage.store, "billing", "without rows").await;
    let elsewhere = register(&stage.store, "shipping", "elsewhere").await;
    stage.park("a").await;
    stage.park("b").await;
    stage.row(&Identity { handler: dead, ..stage.id("c") }, true, Err(Reason::Permanent)).await;
    stage.row(&Identity { handler: elsewhere, ..stage.id("d") }, true, Err(Reason::Permanent)).await;
    let mut waiting = stage.store.waiting("billing").await.unwrap();
    waiting.sort();
    assert_eq!(waiting, ["order_paid", "with a dead row"]);
}

/// A consumer whose claims are still there, or were pruned, is not new.
pub async fn a_history_is_told_by_claims_and_by_what_was_pruned<W: World>(world: W) {
    let stage = Stage::new(world).await;
    register(&stage.store, "new", "without claims").await;
    for consumer in ["billing", "new", "nobody"] {
        assert!(!stage.store.has_history(consumer).await.unwrap(), "{consumer}");
    }
    stage.process("a").await;
    assert!(stage.store.has_history("billing").await.unwrap());
    let (claims, pruned) = (stage.world.own("processed_messages"), stage.world.own("handlers"));
    stage.world.run(&format!("UPDATE {pruned} SET pruned_through = (SELECT processed_at FROM {claims})")).await;
    stage.world.run(&format!("DELETE FROM {claims}")).await;
    assert!(stage.store.has_history("billing").await.unwrap());
    stage.world.run(&format!("UPDATE {pruned} SET pruned_through = NULL")).await;
    stage.park("b").await;
    assert!(stage.store.has_history("billing").await.unwrap());
}

/// Ten processes of one deployment start at once, and again.
pub async fn ten_migrations_at_once_are_one<W: World>(world: W) {
    for _ in 0..2 {
        for store in join_all((0..10).map(|_| world.store(Setup::default()))).await {
            store.unwrap().ping().await.unwrap();
        }
    }
    let migrations = world.own("migrations");
    let (all, distinct) = ("count(*)", "count(DISTINCT version)");
    let number = async |what: &str| world.number(&format!("SELECT {what} FROM {migrations}")).await;
    assert_eq!(number(all).await, number(distinct).await);
    assert!(number(all).await >= 1);
}

/// A worker that needs more connections than there are is refused at its start, with the cure.
pub async fn reserve_refuses_beyond_the_connections<W: World>(world: W) {
    if !W::FEATURES.bounded {
        return;
    }
    let stage = Stage::with(world, Setup { connections: Some(8), ..Setup::default() }).await;
    let first = stage.store.reserve(5).unwrap();
    let refused = stage.store.clone().reserve(4).unwrap_err().to_string();
    assert!(refused.contains("connections"), "{refused}");
    let second = stage.store.reserve(3).unwrap();
    drop(first);
    let _third = stage.store.reserve(5).unwrap();
    assert!(stage.store.reserve(1).is_err());
    drop(second);
    assert!(stage.store.reserve(usize::MAX).is_err());
}

/// A database that is there gives a sign of life.
pub async fn ping_is_answered<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.store.ping().await.unwrap();
}
