//! Messages that are stored together before they run.

use std::time::Duration;

use idem_core::store::{ClaimState, Consumers, Identity, Transactions};
use idem_core::{Codec, DecodeError, Delivery, Fingerprint, HasConnection, Json, Key, Reason};
use tokio::sync::watch;

use idem_conformance::soon;
use idem_conformance::store::{Setup, World};
use idem_test::harness::Crash;
use idem_test::tap::Tapped;

use super::crashes::{order, trial};
use super::duplicates::Witness;
use super::line::{Line, sorted};

use super::orders::{Act, Order};
use super::running::Running;
use super::settings::Settings;

/// Prefetches what the cases publish. The poll interval is long: storing a message wakes the worker.
fn prefetched() -> Settings {
    Settings { concurrency: 100, poll: Duration::from_secs(600), ..Settings::default() }
}

/// How many messages [`blocked`] publishes.
const BEFORE: usize = 3;

/// Starts a worker that writes nothing more to the database while the returned transaction is open. Messages published
/// meanwhile are stored together, after the earlier ones.
async fn blocked<W: World>(line: &Line<W>) -> (Running, <W::Store as Transactions>::Txn) {
    let worker = line.start_with(prefetched());
    line.publish(Order::ok("before 0"));
    line.outcomes(1).await;
    soon(line.queue.idle()).await;
    let block = block(line).await;
    for n in 1..BEFORE {
        line.publish(Order::ok(&format!("before {n}")));
        soon(line.queue.delivered(n + 1)).await;
        if W::FEATURES.concurrent {
            let wait = async {
                while line.world.waiting().await.unwrap_or_default() < n as i64 {
                    tokio::task::yield_now().await;
                }
            };
            soon(wait).await;
        }
    }
    (worker, block)
}

/// Begins a transaction beside which nothing more is written to the inbox.
async fn block<W: World>(line: &Line<W>) -> <W::Store as Transactions>::Txn {
    let mut block = line.store.begin(Duration::from_secs(30)).await.unwrap();
    if W::FEATURES.concurrent {
        let lock = format!("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", line.world.own("inbox_messages"));
        W::execute(<W::Store as HasConnection<W::Connection>>::connection(&mut block), &lock).await.unwrap();
    }
    block
}

/// Copies are detected by the message stored before them in the same batch, and it runs once.
pub async fn a_copy_in_a_batch_is_a_duplicate<W: World>(world: W) {
    let line = Line::new(world).await;
    let (worker, block) = blocked(&line).await;
    for id in ["a", "b", "a", "c", "a"] {
        line.publish(Order::ok(id));
    }
    soon(line.queue.delivered(BEFORE + 5)).await;
    assert_eq!(line.queue.counts().acks, 1, "nothing more is stored");
    line.store.rollback(block).await.unwrap();
    let outcomes = sorted(line.outcomes(BEFORE + 5).await);
    assert_eq!(outcomes[..2], ["duplicate", "duplicate"]);
    assert_eq!(line.queue.counts().stored, BEFORE + 3, "what had no claim is reported to the source");
    assert!(outcomes[2..].iter().all(|outcome| outcome == "processed"), "{outcomes:?}");
    worker.stop_once_idle(&line.queue).await;
    for id in ["a", "b", "c"] {
        assert_eq!((line.effects(id).await, line.desk.runs(id)), (1, 1), "{id}");
    }
    assert!(line.dead().await.is_empty());
}

/// Another message under the key of one in the same batch is a conflict beside it, and copies of it are deliveries.
pub async fn a_conflict_in_a_batch_is_dead_beside_the_first<W: World>(world: W) {
    let line = Line::new(world).await;
    let (worker, block) = blocked(&line).await;
    let other = Order::new("a", &[Act::Ok, Act::Ok]);
    for order in [Order::ok("a"), other.clone(), Order::ok("b"), Order::ok("a"), other] {
        line.publish(order);
    }
    soon(line.queue.delivered(BEFORE + 5)).await;
    line.store.rollback(block).await.unwrap();
    let outcomes = sorted(line.outcomes(BEFORE + 5).await);
    assert_eq!(outcomes[..3], ["dead: conflict", "dead: conflict", "duplicate"]);
    worker.stop_once_idle(&line.queue).await;
    let dead = line.one_dead().await;
    assert_eq!((dead.reason, dead.deliveries), (Some(Reason::Conflict), 2));
    assert_eq!((line.effects("a").await, line.desk.runs("a"), line.effects("b").await), (1, 1, 1));
}

/// Waiting messages are stored together, with few commits.
pub async fn available_messages_are_stored_together<W: World>(world: W) {
    let line = Line::new(world).await;
    let (worker, block) = blocked(&line).await;
    for n in 0..50 {
        line.publish(Order::new(&n.to_string(), &[Act::Wait]));
    }
    soon(line.queue.delivered(BEFORE + 50)).await;
    line.store.rollback(block).await.unwrap();
    soon(line.queue.settled(BEFORE + 50)).await;
    if W::FEATURES.concurrent {
        // Rows of one transaction have one timestamp, by that database's clock; none of them has finished.
        let times = format!("SELECT count(DISTINCT created_at) FROM {}", line.world.own("inbox_messages"));
        let times = line.world.number(&times).await;
        assert!(times <= 6, "50 messages were stored at {times} times");
    }
    line.desk.go.send_replace(true);
    line.outcomes(BEFORE + 50).await;
    worker.stop().await;
    for n in 0..50 {
        assert_eq!(line.effects(&n.to_string()).await, 1);
    }
}

/// Each ack is sent after the batch is committed, as seen through another connection.
pub async fn a_batch_is_acked_after_its_commit<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish_numbers(0..30);
    let witness = Witness::new(&line.world);
    let acks = witness.acks();
    let worker = line.start_at(Tapped::new(line.queue.clone(), witness), prefetched());
    soon(line.queue.settled(30)).await;
    worker.stop().await;
    let taken_over = acks.lock().unwrap().clone();
    assert_eq!(taken_over.len(), 30);
    for (n, taken_over) in taken_over.into_iter().enumerate() {
        assert!(taken_over > n as i64, "ack {n} was sent while {taken_over} messages were taken over");
    }
}

/// A process ends while a batch is stored, at any point: nothing of the batch was acked, and each message has one
/// effect in the end.
pub async fn a_crash_while_a_batch_is_stored_loses_nothing<W: World>(world: W) {
    let line = Line::new(world).await;
    let trial = trial(line.world.clone(), line.desk.clone()).await;
    for (round, point) in Crash::ALL[..5].iter().enumerate().filter(|(_, point)| **point != Crash::InHandler) {
        let id = |n: usize| format!("{round} {}", n % 20);
        (0..25).for_each(|n| trial.publish(&order(Order::ok(&id(n)))));
        let queue = trial.broker().queue("trial");
        let before = queue.counts().acks;
        let process = trial.start(Some(*point), 100).unwrap();
        soon(process.crash_plan.sealed()).await;
        assert_eq!(queue.counts().acks, before, "{point:?}");
        drop(process);
        trial.run().await.unwrap();
        for n in 0..20 {
            assert_eq!(line.effects(&id(n)).await, 1, "{point:?}");
        }
    }
    assert!(trial.dead_letters().await.unwrap().is_empty());
}

/// A key that another process holds delays only its own message, not the others of its batch.
pub async fn a_locked_key_does_not_keep_its_batch<W: World>(world: W) {
    let line = Line::new(world).await;
    if !W::FEATURES.concurrent {
        return;
    }
    let other = line.world.store(Setup::default()).await.unwrap();
    let handler = other.register("billing", &["", "orders"]).await.unwrap()[1];
    let identity = Identity { handler, key: Key::of("locked").unwrap(), fingerprint: Fingerprint::of(b"elsewhere") };
    let mut elsewhere = other.begin(Duration::from_secs(30)).await.unwrap();
    assert!(other.claim(&mut elsewhere, &[&identity], ClaimState::Processed).await.unwrap()[0].is_new());

    let (worker, block) = blocked(&line).await;
    for n in 0..20 {
        line.publish(Order::ok(&format!("{n}")));
    }
    line.publish(Order::ok("locked"));
    line.publish(Order::ok("locked too"));
    soon(line.queue.delivered(BEFORE + 22)).await;
    line.store.rollback(block).await.unwrap();
    line.outcomes(BEFORE + 21).await;
    soon(line.queue.settled(BEFORE + 21)).await;
    assert_eq!((line.queue.counts().unsettled, line.desk.runs("locked")), (1, 0));

    other.rollback(elsewhere).await.unwrap();
    assert!(line.outcomes(BEFORE + 22).await.iter().all(|outcome| outcome == "processed"));
    worker.stop_once_idle(&line.queue).await;
    assert_eq!((line.effects("locked").await, line.effects("locked too").await), (1, 1));
}

/// A trigger of somebody else keeps the claim of one message out. Only that message waits, and is not lost.
pub async fn a_claim_that_a_trigger_keeps_out_does_not_keep_its_batch<W: World>(world: W) {
    let line = Line::new(world).await;
    // Its language is that of PostgreSQL.
    if W::FEATURES.lost_race.is_none() {
        return;
    }
    let (skip, claims) = (line.world.name("skip"), line.world.own("processed_messages"));
    let trigger = format!(
        "CREATE FUNCTION {skip}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
         CREATE TRIGGER skip BEFORE INSERT ON {claims}
             FOR EACH ROW WHEN (NEW.key = 'skipped'::bytea) EXECUTE FUNCTION {skip}()"
    );
    line.world.run(&trigger).await;
    let (worker, block) = blocked(&line).await;
    line.publish(Order::ok("before"));
    line.publish(Order::ok("skipped"));
    line.publish(Order::ok("after"));
    soon(line.queue.delivered(BEFORE + 3)).await;
    line.store.rollback(block).await.unwrap();
    line.outcomes(BEFORE + 2).await;
    soon(line.queue.settled(BEFORE + 2)).await;
    assert_eq!((line.queue.counts().unsettled, line.desk.runs("skipped")), (1, 0));

    line.world.run(&format!("DROP TRIGGER skip ON {claims}")).await;
    assert!(line.outcomes(BEFORE + 3).await.iter().all(|outcome| outcome == "processed"));
    worker.stop_once_idle(&line.queue).await;
    assert_eq!(line.effects("skipped").await, 1);
}

/// Storing a message wakes the worker that runs it: one after another, and many more than run at once.
pub async fn stored_messages_run_without_a_poll<W: World>(world: W) {
    let line = Line::new(world).await;
    let worker = line.start_with(prefetched());
    for n in 0..30 {
        line.publish(Order::ok(&n.to_string()));
        line.outcomes(n + 1).await;
    }
    line.publish_numbers(30..330);
    line.outcomes(330).await;
    worker.stop_once_idle(&line.queue).await;
    let effects = line.world.number(&format!("SELECT count(*) FROM {}", line.world.name("effects"))).await;
    assert_eq!(effects, 330);
}

/// Another worker has them while two batches of this one, which are as many as it stores at once, wait for the database.
pub async fn a_drain_releases_what_waits_to_be_stored_at_once<W: World>(world: W) {
    let line = Line::new(world).await;
    let decoded = watch::Sender::new(0);
    let worker = line.start_with_codec(CountingJson(decoded.clone()), prefetched());
    line.publish(Order::ok("before"));
    line.outcomes(1).await;
    soon(line.queue.idle()).await;
    let block = block(&line).await;
    for id in ["first", "second"] {
        let known = *decoded.borrow();
        line.publish(Order::ok(id));
        // A message is decoded when its batch has begun.
        soon(decoded.subscribe().wait_for(|decoded| *decoded > known)).await.unwrap();
    }
    let waiting = ["a", "b", "c"];
    waiting.iter().for_each(|id| line.publish(Order::ok(id)));
    soon(line.queue.delivered(3 + waiting.len())).await;
    let ended = worker.shut_down();
    soon(line.queue.released(waiting.len())).await;
    assert_eq!(line.queue.counts().acks, 1, "nothing more is stored");
    line.store.rollback(block).await.unwrap();
    soon(ended).await.unwrap().unwrap();
    let counts = line.queue.counts();
    assert_eq!((counts.acks + counts.ready, counts.unsettled), (3 + waiting.len(), 0), "{counts:?}");
    line.run(3 + waiting.len()).await;
    for id in ["before", "first", "second", "a", "b", "c"] {
        assert_eq!((line.effects(id).await, line.desk.runs(id)), (1, 1), "{id}");
    }
}

/// JSON that counts how often it is decoded.
struct CountingJson(watch::Sender<usize>);

impl Codec<Order> for CountingJson {
    fn decode(&self, delivery: &Delivery) -> Result<Order, DecodeError> {
        self.0.send_modify(|decoded| *decoded += 1);
        Json.decode(delivery)
    }
}
