//! Two workers claim one key at the same time, a thousand times.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use idem::SuspectLock;
use idem::prelude::*;
use idem_faults::{Act, Journal, Order, World, fresh};
use idem_test::{Broker, Queue};
use sqlx::SqliteConnection;

const KEYS: usize = 1000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_and_one_key_at_once_have_one_effect_a_thousand_times_on_postgres() {
    let Some(world) = World::new().await else { return };
    let queue = world.broker.queue("orders");
    let stores = [world.store().await, world.store().await];
    let one = |store| world.start(store, queue.clone(), |worker| worker.concurrency(1).prefetch(1));
    let workers = stores.each_ref().map(one);
    world.broker.deliver_twice(KEYS);
    for n in 0..KEYS {
        world.publish(&Order::new(format!("order-{n:04}"), Act::Meet));
    }
    world.journal.until("both deliveries of all are settled", |journal| journal.all().len() >= 2 * KEYS).await;
    for worker in workers {
        worker.stop().await.unwrap();
    }

    let waited = world.number("SELECT count(*) FROM {schema}.effects WHERE id LIKE '% was waited for'").await;
    println!("PostgreSQL: {waited} of {KEYS} claims really waited for the other worker's");
    assert!(waited >= 900, "{waited} of {KEYS}");
    let expected: Vec<_> = (0..KEYS).map(|n| (format!("order-{n:04}"), 1)).collect();
    let effects = world.all_effects().await.into_iter().filter(|(id, _)| !id.contains(' '));
    assert_eq!(effects.collect::<Vec<_>>(), expected);
    assert_eq!(world.journal.count(|outcome| *outcome == Outcome::Processed), KEYS);
    assert_eq!(world.journal.count(|outcome| *outcome == Outcome::Duplicate), KEYS);
    world.end().await;
}

/// The state that the SQLite handler shares with its test.
#[derive(Clone)]
struct Meeting {
    queue: Queue,
    met: Arc<AtomicUsize>,
}

/// Holds the write lock until the other worker has the other delivery, and a little longer.
#[idempotent(key = "id", name = "meet")]
async fn meet(order: Order, meeting: State<Meeting>, tx: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    sqlx::query("INSERT INTO effects (id) VALUES (?)").bind(&order.id).execute(tx).await?;
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(500) {
        if meeting.0.queue.counts().unsettled == 2 {
            meeting.0.met.fetch_add(1, Relaxed);
            break;
        }
        tokio::task::yield_now().await;
    }
    tokio::time::sleep(Duration::from_millis(1)).await;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_workers_and_one_key_at_once_have_one_effect_a_thousand_times_on_sqlite() {
    let file = std::env::temp_dir().join(format!("{}.db", fresh("idem-faults")));
    let url = format!("sqlite://{}", file.display());
    let stores = [Sqlite::connect(&url).await.unwrap(), Sqlite::connect(&url).await.unwrap()];
    let mut db = <SqliteConnection as sqlx::Connection>::connect(&url).await.unwrap();
    sqlx::raw_sql("CREATE TABLE effects (id TEXT NOT NULL)").execute(&mut db).await.unwrap();
    let (broker, journal) = (Broker::new(), Journal::default());
    let meeting = Meeting { queue: broker.queue("orders"), met: Arc::default() };
    broker.deliver_twice(KEYS);
    for n in 0..KEYS {
        broker.publish_json("orders", &Order::new(format!("order-{n:04}"), Act::Write)).unwrap();
    }
    let workers = stores.map(|store| {
        let journal = journal.clone();
        let worker = Worker::new("faults", store, broker.queue("orders"))
            .state(meeting.clone())
            .suspect_lock(SuspectLock::new())
            .concurrency(1)
            .prefetch(1)
            .observe(move |delivery, outcome| journal.note(delivery, outcome))
            .handler::<meet>();
        tokio::spawn(worker.run_until(std::future::pending()))
    });
    journal.until("both deliveries of all are settled", |journal| journal.all().len() >= 2 * KEYS).await;
    workers.iter().for_each(tokio::task::JoinHandle::abort);

    let met = meeting.met.load(Relaxed);
    println!("SQLite: {met} of {KEYS} times both workers had the message in hand while one had the write lock");
    assert!(met >= 900, "{met} of {KEYS}");
    let asked = sqlx::query_scalar("SELECT id FROM effects ORDER BY id");
    let effects: Vec<String> = asked.fetch_all(&mut db).await.unwrap();
    assert_eq!(effects, (0..KEYS).map(|n| format!("order-{n:04}")).collect::<Vec<_>>());
    assert_eq!(journal.count(|outcome| *outcome == Outcome::Processed), KEYS);
    assert_eq!(journal.count(|outcome| *outcome == Outcome::Duplicate), KEYS);
    drop(db);
    for end in ["", "-wal", "-shm"] {
        let _ = std::fs::remove_file(format!("{}{end}", file.display()));
    }
}
