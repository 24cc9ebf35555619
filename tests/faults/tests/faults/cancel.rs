//! Futures dropped at any moment.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use idem::store::HasConnection;
use idem::store::{ClaimState, CommitResult, Consumers, HandlerId, Identity, Transactions};
use idem::{Fingerprint, Key, Postgres};
use idem_faults::{Act, Order, World, until, within};
use sqlx::PgConnection;
use tokio::task::JoinSet;

const CHAINS: usize = 4;

/// Moments from 0 to 3 ms, all different.
fn moment(n: usize) -> Duration {
    Duration::from_micros((n * 7919 % 3000) as u64)
}

/// A timer has a resolution of a millisecond, and a transaction is as short.
async fn pass(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        tokio::task::yield_now().await;
    }
}

/// Begin, claim, effect, commit. Returns whether this call processed the message.
async fn process(world: Arc<World>, store: Postgres, identity: Identity, id: String) -> bool {
    let mut txn = store.begin(Duration::from_secs(10)).await.unwrap();
    if !store.claim(&mut txn, &[&identity], ClaimState::Processed).await.unwrap()[0].is_new() {
        store.rollback(txn).await.unwrap();
        return false;
    }
    let tx = <Postgres as HasConnection<PgConnection>>::connection(&mut txn);
    world.stage.effect(&id, 1, tx).await.unwrap();
    assert!(matches!(store.commit(txn).await, CommitResult::Done));
    true
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn five_hundred_transactions_that_are_dropped_at_any_moment_leave_none_open() {
    let Some(world) = World::new().await else { return };
    let world = Arc::new(world);
    let store = world.store().await;
    let handler = store.register("faults", &["act"]).await.unwrap()[0];
    let [cut, done, stood] = [(); 3].map(|()| Arc::new(AtomicUsize::new(0)));
    let mut chains = JoinSet::new();
    for chain in 0..CHAINS {
        let (world, store) = (world.clone(), store.clone());
        let (cut, done, stood) = (cut.clone(), done.clone(), stood.clone());
        chains.spawn(async move {
            for n in (chain..500).step_by(CHAINS) {
                let id = format!("order-{n}");
                let identity = identity(handler, &id);
                let task = tokio::spawn(process(world.clone(), store.clone(), identity.clone(), id.clone()));
                pass(moment(n)).await;
                task.abort();
                let was_cut = task.await.is_err();
                if was_cut { &cut } else { &done }.fetch_add(1, Relaxed);
                // Its claim exists if the COMMIT had been sent. This also warms a connection for the next one.
                let first = process(world.clone(), store.clone(), identity, id).await;
                assert!(was_cut || !first, "a commit that was answered is lost");
                stood.fetch_add(usize::from(was_cut && !first), Relaxed);
            }
        });
    }
    while let Some(chain) = within("the chains end", chains.join_next()).await {
        chain.unwrap();
    }
    let (cut, done, stood) = (cut.load(Relaxed), done.load(Relaxed), stood.load(Relaxed));
    println!("{cut} transactions were cut off, of which {stood} had committed; {done} were too quick for that");
    assert!(cut >= 100, "only {cut} of 500 were cut off");

    until("no transaction is open", || async { world.sessions("xact_start IS NOT NULL").await == 0 }).await;
    let mut expected: Vec<_> = (0..500).map(|n| (format!("order-{n}"), 1)).collect();
    expected.sort();
    assert_eq!(world.all_effects().await, expected);
    Arc::into_inner(world).unwrap().end().await;
}

fn identity(handler: HandlerId, id: &str) -> Identity {
    Identity { handler, key: Key::of(id).unwrap(), fingerprint: Fingerprint::of(id.as_bytes()) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn workers_that_are_dropped_at_any_moment_leave_no_open_transaction_and_one_effect_each() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let queue = world.broker.queue("orders");
    let (rounds, each) = (40, 4);
    for round in 0..rounds {
        let handed_out = queue.counts().deliveries;
        for n in 0..each {
            world.publish(&Order::new(format!("order-{}", round * each + n), Act::Write));
        }
        let worker = world.start(&store, queue.clone(), |worker| worker.concurrency(4));
        within("the first is handed out", queue.delivered(handed_out + 1)).await;
        pass(moment(round)).await;
        let health = worker.health.clone();
        worker.crash().await;
        assert!(!health.is_ready(), "a worker that is gone is not ready");
        let calm = world.start(&store, queue.clone(), |worker| worker.concurrency(4));
        within("the queue is empty", queue.idle()).await;
        until("the inbox is empty", || async { world.rows(&store).await.is_empty() }).await;
        calm.stop().await.unwrap();
    }
    println!("{} deliveries came again", queue.counts().redeliveries);
    assert!(queue.counts().redeliveries >= 20, "hardly any worker was dropped in the middle");
    until("no transaction is open", || async { world.sessions("xact_start IS NOT NULL").await == 0 }).await;
    let mut expected: Vec<_> = (0..rounds * each).map(|n| (format!("order-{n}"), 1)).collect();
    expected.sort();
    assert_eq!(world.all_effects().await, expected);
    world.end().await;
}
