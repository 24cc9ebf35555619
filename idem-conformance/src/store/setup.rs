//! Tables, handlers, connections.

use std::time::Duration;

use futures_util::future::join_all;
use idem_core::Reason;
use idem_core::operator::Filter;
use idem_core::store::{Consumers, HandlerMark, Identity, OutboxRows, Remedies, Transactions};

use super::stage::{Stage, register};
use super::world::{Setup, World};

/// A name keeps one number, in the order of registration.
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

/// A process keeps the number of a name for as long as it runs, also over a restore of a backup that is older than the name.
pub async fn a_name_that_was_lost_gets_its_number_again_and_no_other_name_gets_it<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let before = register(&stage.store, "billing", "refunds").await;
    let outbox = stage.store.register_outbox("billing").await.unwrap().number;
    assert!(stage.store.mark(&[stage.handler, before, before], HandlerMark::Seen).await.unwrap());
    for table in ["handlers", "outboxes"] {
        stage.world.run(&format!("DELETE FROM {}", stage.world.own(table))).await;
    }
    assert!(!stage.store.mark(&[stage.handler, before], HandlerMark::Seen).await.unwrap());
    let other = register(&stage.store, "shipping", "order_shipped").await;
    assert!(other != stage.handler && other != before);
    assert_ne!(stage.store.register_outbox("shipping").await.unwrap().number, outbox);
    assert_eq!(register(&stage.store, "billing", "refunds").await, before);
    assert!(!stage.store.mark(&[stage.handler, before], HandlerMark::Seen).await.unwrap(), "one of them is missing");
    assert_eq!(register(&stage.store, "billing", "order_paid").await, stage.handler);
    assert_eq!(stage.store.register_outbox("billing").await.unwrap().number, outbox);

    let moved = format!("UPDATE {} SET consumer = 'refunding' WHERE name = 'refunds'", stage.world.own("handlers"));
    stage.world.run(&moved).await;
    assert_ne!(register(&stage.store, "billing", "refunds").await, before, "it belongs to the other consumer");
    assert_eq!(register(&stage.store, "refunding", "refunds").await, before);
}

/// It was registered under its old name first, and processes that run still have that number.
pub async fn a_renamed_handler_that_was_lost_gets_its_number_again<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let before = register(&stage.store, "billing", "charges").await;
    for _ in 0..2 {
        assert!(stage.store.rename("billing", "charges", "payments").await.unwrap());
        assert_eq!(register(&stage.store, "billing", "payments").await, before);
        let known = stage.store.handlers(Some("billing")).await.unwrap();
        let known = known.iter().find(|known| known.id == before).unwrap();
        assert_eq!((known.name.as_str(), &known.formerly[..]), ("payments", &["charges".to_owned()][..]));
        for table in ["handlers", "former_names"] {
            stage.world.run(&format!("DELETE FROM {}", stage.world.own(table))).await;
        }
    }
}

/// A release that is rolled back registers the old name, and the next one the new name again.
pub async fn the_names_of_a_handler_have_one_number<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let rename = async |old: &str, new: &str| stage.store.rename("billing", old, new).await.unwrap();
    let number = async |name: &str| register(&stage.store, "billing", name).await;
    assert!(rename("never there", "order_paid").await && rename("neither", "both").await);
    assert_eq!(number("never there").await, stage.handler);
    assert_eq!(number("neither").await, number("both").await);

    stage.process("a").await;
    stage.schedule("waits").await;
    for _ in 0..2 {
        assert!(rename("order_paid", "settled").await);
        assert_eq!((number("settled").await, number("order_paid").await), (stage.handler, stage.handler));
    }
    let known = stage.store.handlers(Some("billing")).await.unwrap();
    let known = known.into_iter().find(|known| known.id == stage.handler).unwrap();
    let mut names = known.formerly;
    names.sort();
    assert_eq!((known.name.as_str(), names), ("settled", vec!["never there".to_owned(), "order_paid".to_owned()]));
    assert!(known.has_rows && known.has_claims);
    let filter = Filter::new().scheduled().handler("order_paid");
    assert_eq!(stage.list(&filter).await.len(), 1);

    // A release without the former name has registered the new one, and processed nothing.
    let unused = number("charged").await;
    assert!(unused != stage.handler && rename("settled", "charged").await);
    assert_eq!((number("charged").await, number("settled").await), (stage.handler, stage.handler));
    number("unused").await;
    assert!(rename("unused", "charged").await);
    assert_eq!(number("unused").await, stage.handler);
}

/// Their messages cannot be told apart any more. The statement moves what the old name has.
pub async fn two_names_with_claims_are_joined_by_the_statement_only<W: World>(world: W) {
    let mut stage = Stage::new(world).await;
    let new = stage.handler;
    stage.process("of both").await;
    let old = register(&stage.store, "billing", "old").await;
    stage.handler = old;
    stage.process("of both").await;
    stage.process("of the old one").await;
    assert!(!stage.store.rename("billing", "old", "order_paid").await.unwrap());
    assert_eq!(register(&stage.store, "billing", "old").await, old, "nothing has changed");
    let remedy = Remedies::of(&stage.store, "billing", "old", "order_paid").join;
    stage.world.run(&remedy).await;
    assert!(stage.store.rename("billing", "old", "order_paid").await.unwrap());
    assert_eq!(register(&stage.store, "billing", "old").await, new);
    stage.handler = new;
    for key in ["of both", "of the old one"] {
        assert!(stage.is_dated(key).await, "{key}");
    }
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

/// A worker refuses to leave rows behind that no handler would run, so it queries their handlers.
pub async fn waiting_lists_handlers_with_rows<W: World>(world: W) {
    let stage = Stage::new(world).await;
    assert_eq!(waiting(&stage).await, Vec::<String>::new());
    let dead = register(&stage.store, "billing", "with a dead row").await;
    register(&stage.store, "billing", "without rows").await;
    let elsewhere = register(&stage.store, "shipping", "elsewhere").await;
    stage.schedule("a").await;
    stage.schedule("b").await;
    stage.row(&Identity { handler: dead, ..stage.id("c") }, true, Err(Reason::Permanent)).await;
    stage.row(&Identity { handler: elsewhere, ..stage.id("d") }, true, Err(Reason::Permanent)).await;
    assert_eq!(waiting(&stage).await, ["order_paid", "with a dead row"]);
    let all = stage.store.handlers(None).await.unwrap();
    let all: Vec<_> = all.iter().map(|known| (known.consumer.as_str(), known.name.as_str())).collect();
    let billing = ["order_paid", "with a dead row", "without rows"].map(|name| ("billing", name));
    assert_eq!(all, [&billing[..], &[("shipping", "elsewhere")]].concat());
}

/// The handlers of this consumer that have rows.
async fn waiting<W: World>(stage: &Stage<W>) -> Vec<String> {
    let known = stage.store.handlers(Some("billing")).await.unwrap();
    known.into_iter().filter(|known| known.has_rows).map(|known| known.name).collect()
}

/// How long ago a worker last had the handler `order_paid`.
async fn seen<W: World>(stage: &Stage<W>) -> Duration {
    let known = stage.store.handlers(Some("billing")).await.unwrap();
    known.iter().find(|known| known.id == stage.handler).unwrap().seen
}

/// Moves the last-seen time of all handlers back by `by`.
async fn seen_earlier<W: World>(stage: &Stage<W>, by: Duration) {
    let (handlers, earlier) = (stage.world.own("handlers"), W::earlier("seen_at", by));
    stage.world.run(&format!("UPDATE {handlers} SET seen_at = {earlier}")).await;
}

/// By the database's clock, and only for the named handlers. Half a minute counts as now, so that many workers write no
/// more often than one.
pub async fn handlers_are_seen_when_a_worker_has_them<W: World>(world: W) {
    let stage = Stage::new(world).await;
    let (days, minutes) = (Duration::from_secs(3 * 24 * 3600), Duration::from_secs(300));
    let other = register(&stage.store, "billing", "other").await;
    stage.schedule("a").await;
    assert!(seen(&stage).await < minutes, "a new handler is there");
    seen_earlier(&stage, days).await;
    assert!((days..days + minutes).contains(&seen(&stage).await));
    register(&stage.store, "billing", "order_paid").await;
    stage.store.mark(&[], HandlerMark::Seen).await.unwrap();
    stage.store.mark(&[other], HandlerMark::Seen).await.unwrap();
    assert!(seen(&stage).await >= days);
    stage.store.mark(&[other, stage.handler], HandlerMark::Seen).await.unwrap();
    assert!(seen(&stage).await < minutes);

    let numbers = format!("SELECT count(DISTINCT seen_at) FROM {}", stage.world.own("handlers"));
    stage
        .world
        .run(&format!("UPDATE {0} SET seen_at = (SELECT max(seen_at) FROM {0})", stage.world.own("handlers")))
        .await;
    for handler in [other, stage.handler] {
        stage.store.mark(&[handler], HandlerMark::Seen).await.unwrap();
    }
    assert_eq!(stage.world.number(&numbers).await, 1, "neither was written again");
}

/// Recording that a worker is alive never waits for another worker that does the same.
pub async fn handlers_are_seen_by_many_at_once<W: World>(world: W) {
    let stage = Stage::new(world).await;
    stage.schedule("a").await;
    seen_earlier(&stage, Duration::from_secs(3600)).await;
    let mut stores = vec![stage.store.clone()];
    for _ in 0..8 {
        stores.push(stage.world.store(Setup::default()).await.unwrap());
    }
    if W::FEATURES.concurrent {
        let mut txn = stage.begin().await;
        stage.execute(&mut txn, &format!("UPDATE {} SET name = name", stage.world.own("handlers"))).await.unwrap();
        for all in
            join_all(stores.iter().map(|store| store.mark(std::slice::from_ref(&stage.handler), HandlerMark::Seen)))
                .await
        {
            all.unwrap();
        }
        stage.store.rollback(txn).await.unwrap();
        assert!(seen(&stage).await >= Duration::from_secs(3600), "it was locked, and left out");
    }
    for all in
        join_all(stores.iter().map(|store| store.mark(std::slice::from_ref(&stage.handler), HandlerMark::Seen))).await
    {
        all.unwrap();
    }
    assert!(seen(&stage).await < Duration::from_secs(600));
}

/// A consumer that has claims, or had claims that were pruned, is not new.
pub async fn a_history_is_recognized_by_claims_and_by_what_was_pruned<W: World>(world: W) {
    let stage = Stage::new(world).await;
    register(&stage.store, "new", "without claims").await;
    register(&stage.store, "billing", "without claims").await;
    let histories = async |consumer: &str| {
        let known = stage.store.handlers(Some(consumer)).await.unwrap();
        let known = known.into_iter().filter(|known| known.has_processed);
        known.map(|known| (known.name, known.has_claims)).collect::<Vec<_>>()
    };
    for consumer in ["billing", "new", "nobody"] {
        assert_eq!(histories(consumer).await, [], "{consumer}");
    }
    stage.process("a").await;
    let (processed, gone) = ([("order_paid".to_owned(), true)], [("order_paid".to_owned(), false)]);
    assert_eq!(histories("billing").await, processed);
    let hours = Duration::from_secs(7 * 3600);
    seen_earlier(&stage, hours).await;
    assert!(seen(&stage).await >= hours);
    let (claims, pruned) = (stage.world.own("processed_messages"), stage.world.own("handlers"));
    let through = format!("pruned_through = (SELECT processed_at FROM {claims}) WHERE name = 'order_paid'");
    stage.world.run(&format!("UPDATE {pruned} SET {through}")).await;
    stage.world.run(&format!("DELETE FROM {claims}")).await;
    assert_eq!(histories("billing").await, gone);
    stage.world.run(&format!("UPDATE {pruned} SET pruned_through = NULL")).await;
    assert_eq!(histories("billing").await, []);
    stage.schedule("b").await;
    assert_eq!(histories("billing").await, processed);
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

/// Workers share the connections of a store, and learn how many they can use together if there are fewer. A store that
/// has none for its own statements is too small for a worker.
pub async fn workers_share_the_connections<W: World>(world: W) {
    if !W::FEATURES.bounded {
        return;
    }
    let stage = Stage::with(world, Setup { connections: Some(8), ..Setup::default() }).await;
    let first = stage.store.facts().connections.add(5);
    let second = stage.store.clone().facts().connections.add(4);
    assert_eq!((first.wanted(), second.wanted()), (Some(9), Some(9)));
    drop(first);
    assert_eq!(stage.store.facts().connections.add(4).wanted(), None);
    let small = stage.world.store(Setup { connections: Some(1), ..Setup::default() }).await;
    let refused = small.map(drop).unwrap_err().to_string();
    assert!(refused.contains(".connections(2)"), "{refused}");
}
