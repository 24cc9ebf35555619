//! Pruning: deletes only claims that are dated, old, and without an inbox row.

use std::time::{Duration, SystemTime};

use idem_core::Reason;
use idem_core::store::{ClaimState, Claimed, Consumers, HandlerId, Identity, Transactions};

use super::stage::{Stage, committed, register};
use super::world::{Setup, World};

const RETENTION: Duration = Duration::from_secs(3600);

async fn stage<W: World>(world: W) -> Stage<W> {
    Stage::with(world, Setup { retention: Some(RETENTION), ..Setup::default() }).await
}

/// Claims older than the retention are deleted; waiting claims never are.
pub async fn prune_deletes_old_dated_claims_only<W: World>(world: W) {
    let stage = stage(world).await;
    assert_eq!(stage.store.prune().await.unwrap(), 0);
    stage.process("old").await;
    stage.process("old too").await;
    stage.schedule("scheduled").await;
    stage.dead_letter("dead", Reason::Exhausted).await;
    // It has no row, so that only its missing date keeps it.
    let mut txn = stage.begin().await;
    stage.store.claim(&mut txn, &[&stage.id("waiting")], ClaimState::Waiting).await.unwrap();
    committed(stage.commit(txn).await);
    stage.claims_earlier(RETENTION * 2).await;
    stage.process("fresh").await;
    stage.claims_earlier(RETENTION / 2).await;

    assert_eq!(stage.store.prune().await.unwrap(), 2);
    assert!(stage.claim_now(&stage.id("old")).await.is_new());
    for key in ["scheduled", "dead", "waiting", "fresh"] {
        assert!(!stage.claim_now(&stage.id(key)).await.is_new(), "{key}");
    }
    assert_eq!(stage.store.prune().await.unwrap(), 0);
}

/// How far the claims of a handler were pruned, as a new claim reports it.
async fn through<W: World>(stage: &Stage<W>, handler: HandlerId) -> Option<SystemTime> {
    let identity = Identity { handler, ..stage.id("asks") };
    match stage.claim_now(&identity).await {
        Claimed::New { pruned_through } => pruned_through,
        _ => panic!("it was rolled back each time"),
    }
}

/// It is the date of the newest deleted claim, which is older than the retention. A later prune of older claims does
/// not lower it, and it applies to this handler only.
pub async fn prune_tells_how_far_it_went<W: World>(world: W) {
    let stage = stage(world).await;
    let other = register(&stage.store, "billing", "order_shipped").await;
    let age = async |handler| {
        let through = through(&stage, handler).await;
        through.map(|through| SystemTime::now().duration_since(through).unwrap_or_default())
    };
    assert_eq!(age(stage.handler).await, None);
    stage.process("older").await;
    stage.claims_earlier(RETENTION).await;
    stage.process("old").await;
    stage.claims_earlier(RETENTION * 2).await;
    stage.process("fresh").await;
    assert_eq!(stage.store.prune().await.unwrap(), 2);
    let around = |age: Duration| age.abs_diff(RETENTION * 2) < Duration::from_secs(60);
    let first = age(stage.handler).await.unwrap();
    assert!(around(first), "{first:?}");
    assert_eq!(age(other).await, None);

    stage.claims_earlier(RETENTION * 9).await;
    assert_eq!(stage.store.prune().await.unwrap(), 1);
    let second = age(stage.handler).await.unwrap();
    assert!(around(second), "{second:?}");
}

/// Many claims report it for each handler, whether all of them are new or only some.
pub async fn claims_of_many_tell_how_far_prune_went_for_each_handler<W: World>(world: W) {
    let stage = stage(world).await;
    let other = register(&stage.store, "billing", "order_shipped").await;
    stage.process("old").await;
    stage.claims_earlier(RETENTION * 2).await;
    stage.process("known").await;
    assert_eq!(stage.store.prune().await.unwrap(), 1);
    let expected = through(&stage, stage.handler).await;
    assert!(expected.is_some());

    let (a, known) = (stage.id("a"), stage.id("known"));
    let b = Identity { handler: other, ..stage.id("b") };
    let (of_handler, of_other) = (Claimed::New { pruned_through: expected }, Claimed::New { pruned_through: None });
    for (ids, expected) in [
        (vec![&a, &b], vec![Some(of_handler), Some(of_other)]),
        (vec![&a, &known, &b], vec![Some(of_handler), None, Some(of_other)]),
        (vec![&known, &b], vec![None, Some(of_other)]),
    ] {
        // The first attempt of a transaction may use a different statement from later ones.
        for attempts in 1..3 {
            let mut txn = stage.begin().await;
            for _ in 1..attempts {
                stage.store.claim(&mut txn, &[&known], ClaimState::Processed).await.unwrap();
            }
            let claimed = stage.store.claim(&mut txn, &ids, ClaimState::Processed).await.unwrap();
            let new: Vec<_> = claimed.into_iter().map(|claimed| Some(claimed).filter(Claimed::is_new)).collect();
            assert_eq!(new, expected);
            stage.store.rollback(txn).await.unwrap();
        }
    }
}

/// If a claim races with the prune of an older one, either the claim is found or the pruning cutoff shows that it may
/// have existed.
pub async fn a_claim_that_races_with_prune_is_found_or_reported<W: World>(world: W) {
    let stage = stage(world).await;
    let ids: Vec<_> = (0..200).map(|n| stage.id(&format!("{n:03}"))).collect();
    for _ in 0..3 {
        let mut txn = stage.begin().await;
        stage.store.claim(&mut txn, &ids.iter().collect::<Vec<_>>(), ClaimState::Processed).await.unwrap();
        committed(stage.commit(txn).await);
        stage.claims_earlier(RETENTION * 2).await;
        let race = async {
            let mut found = 0;
            for id in &ids {
                let Claimed::New { pruned_through } = stage.claim_now(id).await else {
                    found += 1;
                    continue;
                };
                let through = pruned_through.expect("its claim was there, and was pruned");
                let age = SystemTime::now().duration_since(through).unwrap_or_default();
                assert!(age < RETENTION * 2 + Duration::from_secs(60), "{age:?}");
            }
            found
        };
        let (found, done) = tokio::join!(race, stage.store.prune());
        assert_eq!(done.unwrap(), 200, "{found} were found");
        let handlers = stage.world.own("handlers");
        stage.world.run(&format!("UPDATE {handlers} SET pruned_through = NULL")).await;
    }
}

/// Two services in one schema: each handler's claims are kept for the retention of its own store.
pub async fn claims_are_kept_for_the_retention_of_their_own_handler<W: World>(world: W) {
    let stage = stage(world).await;
    let long = stage.world.store(Setup { retention: Some(RETENTION * 100), ..Setup::default() }).await.unwrap();
    let other = register(&long, "shipping", "order_paid").await;
    let kept = Identity { handler: other, ..stage.id("a") };
    stage.process("a").await;
    committed(stage.commit(stage.claimed(&kept).await).await);
    stage.claims_earlier(RETENTION * 2).await;
    for store in [&long, &stage.store] {
        store.prune().await.unwrap();
    }
    assert!(!stage.claim_now(&kept).await.is_new());
    assert!(stage.claim_now(&stage.id("a")).await.is_new());
    let retentions = [retention(&stage.store, other).await, retention(&stage.store, stage.handler).await];
    assert_eq!(retentions, [Some(RETENTION * 100), Some(RETENTION)]);
}

/// How long claims of this handler are kept.
async fn retention<S: Consumers>(store: &S, handler: HandlerId) -> Option<Duration> {
    let known = store.handlers(None).await.unwrap();
    known.iter().find(|known| known.id == handler).unwrap().retention
}

/// Two versions of a service: claims are kept for the longer of the two retentions. An operator can lower it, except
/// where claims are kept forever.
pub async fn the_greater_retention_wins_until_an_operator_lowers_it<W: World>(world: W) {
    let stage = stage(world).await;
    let long = stage.world.store(Setup { retention: Some(RETENTION * 100), ..Setup::default() }).await.unwrap();
    stage.process("a").await;
    stage.claims_earlier(RETENTION * 2).await;
    for store in [&long, &stage.store] {
        assert_eq!(register(store, "billing", "order_paid").await, stage.handler);
        assert_eq!(retention(store, stage.handler).await, Some(RETENTION * 100));
        assert_eq!(stage.store.prune().await.unwrap(), 0);
    }

    let (handlers, lower) = (stage.world.own("handlers"), W::earlier("retention", RETENTION * 99));
    stage.world.run(&format!("UPDATE {handlers} SET retention = {lower} WHERE consumer = 'billing'")).await;
    register(&stage.store, "billing", "order_paid").await;
    assert_eq!(retention(&stage.store, stage.handler).await, Some(RETENTION), "by what the operator says");

    stage.world.run(&format!("UPDATE {handlers} SET retention = NULL")).await;
    register(&stage.store, "billing", "order_paid").await;
    assert_eq!(retention(&stage.store, stage.handler).await, None);
    assert_eq!(long.prune().await.unwrap(), 0);

    let another = register(&long, "billing", "another").await;
    stage.world.run(&format!("UPDATE {handlers} SET retention = {lower} WHERE name = 'another'")).await;
    let identity = Identity { handler: another, ..stage.id("b") };
    committed(stage.commit(stage.claimed(&identity).await).await);
    stage.claims_earlier(RETENTION * 2).await;
    assert_eq!(long.prune().await.unwrap(), 1, "by what the operator says");
}

/// A conflict has a dated claim beside it, which identifies the message it conflicts with.
pub async fn prune_never_deletes_a_claim_with_a_row<W: World>(world: W) {
    let stage = stage(world).await;
    stage.process("a").await;
    let id = stage.conflict("a", "another").await;
    stage.claims_earlier(RETENTION * 2).await;
    assert_eq!(stage.store.prune().await.unwrap(), 0);
    assert!(stage.discard(id).await);
    assert_eq!(stage.store.prune().await.unwrap(), 1);
}

/// A transaction that read a claim, to write a conflict beside it, finds the claim until it commits; prune does not
/// wait.
pub async fn prune_skips_a_claim_that_is_being_read<W: World>(world: W) {
    if !W::FEATURES.concurrent {
        return;
    }
    let stage = stage(world).await;
    stage.process("a").await;
    stage.process("b").await;
    stage.claims_earlier(RETENTION * 2).await;
    let mut reader = stage.begin().await;
    assert!(stage.store.existing_claims(&mut reader, &[&stage.id("a")], true).await.unwrap()[0].is_some());
    assert_eq!(stage.store.prune().await.unwrap(), 1);
    committed(stage.commit(reader).await);
    assert_eq!(stage.store.prune().await.unwrap(), 1);
}

/// One pruner works at a time. The others return so at once, and together they delete each claim once.
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
    let all = futures_util::future::join_all(stores.iter().map(Consumers::prune)).await;
    let all = all.into_iter().map(Result::unwrap).collect::<Vec<_>>();
    assert_eq!(all.iter().sum::<u64>(), 60, "{all:?}");
    assert_eq!(stage.store.prune().await.unwrap(), 0, "the lock is free again");
}
