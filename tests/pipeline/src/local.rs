//! Local messages, which a handler hands to another one of its worker.

use std::time::Duration;

use idem_core::store::{Consumers, Identity, Transactions};
use idem_core::{Fingerprint, HandlerOptions, Key};

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::Publication;

use super::handing::{Handing, Hands, Receipt, Receives};
use super::line::sorted;
use super::orders::{Act, Order};
use super::settings::Settings;
use super::watched::{is_ready, watched};

/// It runs once, as does its sender, and is the same message as a copy of it that comes from a broker.
pub async fn a_local_message_runs_exactly_once<W: World>(world: W) {
    let handing = Handing::new(world).await;
    for id in ["a", "large"] {
        handing.publish("Handing", Order::ok(id));
    }
    assert_eq!(handing.run(4).await, ["processed"; 4]);
    for id in ["a", "large"] {
        handing.publish("Handing", Order::ok(id));
        handing.0.publish_raw(Publication::json(&Receipt::of(id)).unwrap().event_type("Receipt"));
    }
    assert_eq!(handing.run(8).await[..4], ["duplicate"; 4]);
    for id in ["a", "large"] {
        assert_eq!((handing.0.effects(id).await, handing.0.effects(&format!("receipt {id}")).await), (1, 1), "{id}");
    }
    assert_eq!((handing.0.dead().await.len(), handing.0.scheduled().await.len(), handing.claims().await), (0, 0, 2));
}

/// It is there once if its sender succeeds in the end, and never if it does not, or ends its transaction.
pub async fn nothing_is_handed_over_by_a_run_that_fails<W: World>(world: W) {
    let handing = Handing::new(world).await;
    for size in ["", "large "] {
        let named = |name: &str, acts: &[Act]| Order::new(&format!("{size}{name}"), acts);
        let acts = [Act::Fail, Act::Panic, Act::Fail, Act::Ok];
        handing.publish("Handing", named("fails", &acts).by_attempt());
        handing.publish("Handing", named("never", &[Act::Permanent]));
        handing.publish("Handing", named("rolls back", &[Act::Rollback]));
        handing.publish("Handing", named("begins", &[Act::RollbackBegin]));
        handing.publish("Handing", named("commits", &[Act::Commit]));
        handing.publish("Handing", named("begins again", &[Act::CommitBegin]));
        handing.publish("Handing", named("good", &[Act::Ok]));
    }
    handing.run(2 * 12).await;
    assert_eq!((handing.0.dead().await.len(), handing.0.scheduled().await.len()), (10, 0));
    for good in ["fails", "good", "large fails", "large good"] {
        assert_eq!(handing.0.effects(&format!("receipt {good}")).await, 1, "{good}");
    }
    assert_eq!(handing.claims().await, 4);
}

/// Only a handler of the same worker can be named. Otherwise the message would wait for a worker that nobody has.
pub async fn a_local_message_for_an_unknown_handler_is_a_failure<W: World>(world: W) {
    let handing = Handing::new(world).await;
    let worker = handing.0.run_until_stopped(handing.0.worker().handler::<Hands<W>>(), Settings::once());
    handing.publish("Handing", Order::ok("a"));
    handing.0.outcomes(1).await;
    worker.stop().await;
    let dead = handing.0.one_dead().await;
    assert!(dead.error.contains("\"receives\"") && dead.error.contains("does not have it"), "{}", dead.error);
    assert_eq!((handing.0.effects("a").await, handing.0.scheduled().await.len()), (0, 0));
}

/// A message that its handler could never take is reported to its sender, instead of becoming a dead letter.
pub async fn a_local_message_that_cannot_be_taken_is_a_failure<W: World>(world: W) {
    let handing = Handing::new(world).await;
    for id in ["undecodable", "keyless", "large"] {
        handing.publish("Handing", Order::ok(id));
    }
    let settings = Settings { max_payload: 50_000, ..Settings::once() };
    assert_eq!(handing.run_with(settings, 3).await, ["dead: exhausted"; 3]);
    let errors: Vec<String> = handing.0.dead().await.into_iter().map(|row| row.error).collect();
    for says in ["expected ident", "the key is empty", "raise `.max_payload(..)`"] {
        assert!(
            errors.iter().any(|error| error.contains(says) && error.contains("\"receives\"")),
            "{says}: {errors:?}"
        );
    }
    assert_eq!(handing.claims().await, 0);
}

/// Many messages, some of which fail at first, and some of which hand over the same: each runs once.
pub async fn each_of_many_messages_hands_over_once<W: World>(world: W) {
    let handing = Handing::new(world).await;
    let worker = handing.start(Settings { concurrency: 2, ..Settings::default() });
    for n in 0..60 {
        let acts: &[Act] = if n % 7 == 3 { &[Act::Fail, Act::Ok] } else { &[Act::Ok] };
        handing.publish("Handing", Order::new(&n.to_string(), acts).by_attempt());
        if n % 6 == 0 {
            handing.publish("Handing", Order::ok(&format!("{n} shared")));
        }
    }
    let failing = (0..60).filter(|n| n % 7 == 3).count();
    // The shared ones hand over one message together.
    handing.0.outcomes(60 + failing + 60 + 10 + 1).await;
    worker.stop_once_idle(&handing.0.queue).await;
    for n in 0..60 {
        assert_eq!(handing.0.effects(&format!("receipt {n}")).await, 1, "{n}");
    }
    assert_eq!((handing.0.effects("receipt shared").await, handing.0.dead().await.len()), (1, 0));
}

/// A batch handler hands over with its batch, also after it was halved.
pub async fn a_batch_handler_hands_over_with_its_batch<W: World>(world: W) {
    let handing = Handing::new(world).await;
    for n in 0..10 {
        handing.publish("HandingBatch", Order::ok(&n.to_string()));
    }
    handing.publish("HandingBatch", Order::new("bad", &[Act::Permanent]));
    handing.run(21).await;
    for n in 0..10 {
        assert_eq!(handing.0.effects(&format!("receipt {n}")).await, 1, "{n}");
    }
    assert_eq!((handing.0.effects("receipt bad").await, handing.claims().await), (0, 10));
}

/// Whatever runs twice hands over the same messages, which are duplicates then: by the keys of their handlers, and by
/// ids that are derived from the incoming message.
pub async fn a_message_that_runs_again_hands_over_nothing_new<W: World>(world: W) {
    let handing = Handing::new(world).await;
    for id in ["a", "b by id"] {
        handing.publish("Handing", Order::ok(id));
    }
    // The one with ids hands over two more messages.
    handing.run(2 + 1 + 3).await;
    let (claims, handlers) = (handing.0.world.own("processed_messages"), handing.0.world.own("handlers"));
    let of = format!("SELECT id FROM {handlers} WHERE name = 'hands'");
    handing.0.world.run(&format!("DELETE FROM {claims} WHERE handler_id IN ({of})")).await;
    for id in ["b by id", "a"] {
        handing.publish("Handing", Order::ok(id));
    }
    assert_eq!(handing.run(6 + 2).await, ["processed"; 8]);
    for (id, receipts) in [("a", 1), ("b by id", 1)] {
        let counted = (handing.0.effects(id).await, handing.0.effects(&format!("receipt {id}")).await);
        assert_eq!(counted, (2, receipts), "{id}");
    }
    assert_eq!((handing.0.effects("by derived id").await, handing.0.effects("by id 7").await), (1, 1));
    assert_eq!((handing.0.scheduled().await.len(), handing.claims().await), (0, 4));
}

/// Another message under a key that is claimed is a conflict, as if it had come from a broker, and not its sender's
/// failure. This holds within one transaction as well.
pub async fn a_local_message_under_the_key_of_another_is_a_conflict<W: World>(world: W) {
    let handing = Handing::new(world).await;
    handing.publish("Handing", Order::ok("a"));
    handing.run(2).await;
    handing.publish("Handing", Order::ok("a twice"));
    handing.publish("Handing", Order::ok("c twice"));
    // The first one has two conflicts with the claim that is there, and one of the second's messages runs.
    handing.run(2 + 3).await;
    let dead = handing.0.dead().await;
    assert_eq!(dead.len(), 3, "{dead:?}");
    assert!(dead.iter().all(|row| row.reason == Some(idem_core::Reason::Conflict)), "{dead:?}");
    assert!(dead.iter().all(|row| row.error.contains("--as") && row.handler == "receives"), "{dead:?}");
    assert_eq!((handing.0.effects("receipt a").await, handing.0.effects("first c").await), (1, 1));
    assert_eq!(handing.claims().await, 2);
}

/// A handler of local messages only takes no delivery, whatever its event type.
pub async fn a_handler_of_local_messages_only_takes_no_delivery<W: World>(world: W) {
    let handing = Handing::new(world).await;
    let worker =
        handing.0.worker().handler_options::<Receives<W>>(HandlerOptions::new().local_only()).handler::<Hands<W>>();
    let worker = handing.0.run_until_stopped(worker, Settings::default());
    handing.publish("Handing", Order::ok("a"));
    handing.0.publish_raw(Publication::json(&Receipt::of("b")).unwrap().event_type("Receipt"));
    assert_eq!(sorted(handing.0.outcomes(3).await), ["dead: unknown type", "processed", "processed"]);
    worker.stop().await;
    assert_eq!((handing.0.effects("receipt a").await, handing.0.effects("receipt b").await), (1, 0));
}

/// Another transaction may hold the claim of a local message for as long as its handler may run. The sender waits for it,
/// as a delivery does whose own claim is held, and no attempt is recorded.
pub async fn a_sender_records_no_attempt_for_a_claim_that_another_transaction_holds<W: World>(world: W) {
    let handing = Handing::new(world).await;
    if !W::FEATURES.concurrent {
        return;
    }
    let store = &handing.0.store;
    let handler = store.register("billing", &["receives"]).await.unwrap()[0];
    let fingerprint = Fingerprint::of(Publication::json(&Receipt::of("a")).unwrap().payload());
    let identity = Identity { handler, key: Key::of("a").unwrap(), fingerprint };
    let claim = store.begin_first(Duration::from_secs(60), Some(&identity));
    let (other, claimed) = claim.await.unwrap();
    assert!(claimed.is_new());
    for id in ["b", "a", "c"] {
        handing.publish("Handing", Order::ok(id));
    }
    let worker = handing.start(Settings::once());
    // More often than a lost race is retried before an attempt is recorded. It may have run in two batches before.
    let often = if handing.0.world.batch() > 1 { 9 } else { 7 };
    let runs_often = async {
        while handing.0.desk.runs("a") < often {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(60), runs_often).await.unwrap();
    assert_eq!(handing.0.outcomes(4).await, ["processed"; 4], "the others go on");
    store.rollback(other).await.unwrap();
    assert_eq!(handing.0.outcomes(6).await, ["processed"; 6]);
    worker.stop().await;
    for id in ["a", "b", "c"] {
        assert_eq!(handing.0.effects(&format!("receipt {id}")).await, 1, "{id}");
    }
}

/// Batches that each hand over what the other one has received wait for each other. No attempt is recorded, and all run.
pub async fn what_is_handed_over_and_delivered_at_once_runs_once<W: World>(world: W) {
    let handing = Handing::new(world).await;
    let number = 40;
    for n in 0..number {
        handing.publish("Handing", Order::ok(&n.to_string()));
        let receipt = Receipt::of(&((n * 7 + 3) % number).to_string());
        handing.0.publish_raw(Publication::json(&receipt).unwrap().event_type("Receipt"));
    }
    let worker = handing.start(Settings { concurrency: 4, ..Settings::once() });
    handing.0.outcomes(2 * number).await;
    idem_conformance::soon(handing.0.queue.idle()).await;
    until(async || handing.0.scheduled().await.is_empty()).await;
    worker.stop().await;
    assert_eq!(handing.0.dead().await.len(), 0);
    for n in 0..number {
        let effects = (handing.0.effects(&n.to_string()).await, handing.0.effects(&format!("receipt {n}")).await);
        assert_eq!(effects, (1, 1), "{n}");
    }
}

/// The worker is woken by the commit, and needs no poll.
pub async fn a_local_message_runs_without_a_poll<W: World>(world: W) {
    let handing = Handing::new(world).await;
    handing.publish("Handing", Order::ok("a"));
    let worker = handing.start(Settings { poll: Duration::from_secs(600), ..Settings::default() });
    assert_eq!(handing.0.outcomes(2).await, ["processed"; 2]);
    worker.stop().await;
}

/// A worker that publishes nothing is ready without a relay, until it does.
pub async fn a_worker_that_only_hands_over_needs_no_relay<W: World>(world: W) {
    let handing = Handing::new(world).await;
    let (settings, health) = watched(2);
    let worker = handing.start(Settings { relay_patience: Duration::from_millis(100), ..settings });
    let health = health.borrow().clone().unwrap();
    handing.publish("Handing", Order::ok("a"));
    handing.0.outcomes(2).await;
    is_ready(&health, true).await;
    // Several times the patience.
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert!(health.is_ready() && health.unrelayed().is_none(), "{:?}", health.unrelayed());
    handing.publish("Handing", Order::ok("b published"));
    is_ready(&health, false).await;
    assert!(health.unrelayed().is_some());
    worker.stop().await;
}
