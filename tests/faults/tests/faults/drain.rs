//! Shutdown, graceful and otherwise.

use std::time::{Duration, Instant};

use idem::{Key, Postgres};
use idem_faults::{Act, Order, Relay, World, until, variable};

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_under_load_finishes_what_runs_and_releases_the_rest() {
    let Some(world) = World::new().await else { return };
    let store = world.store().await;
    let queue = world.broker.queue("orders");
    let worker =
        world.start(&store, queue.clone(), |worker| worker.concurrency(8).shutdown_timeout(Duration::from_secs(20)));
    let registered = "SELECT count(*) FROM {schema}.handlers WHERE name = 'act'";
    until("the handler is registered", || async { world.number(registered).await == 1 }).await;

    // One delivery is held: its claim is in a transaction that does not end.
    let mut elsewhere = world.pool.begin().await.unwrap();
    let claim = "INSERT INTO {schema}.processed_messages (handler_id, key, fingerprint, processed_at)
                 SELECT id, $1, '', now() FROM {schema}.handlers WHERE name = 'act'";
    let key = Key::of("held").unwrap();
    sqlx::query(world.stage.sql(claim)).bind(key.as_bytes()).execute(&mut *elsewhere).await.unwrap();
    world.publish(&Order::new("held", Act::Write));
    let total = 400;
    for n in 1..total {
        world.publish(&Order::new(format!("order-{n}"), Act::Take(20)));
    }
    world.stage.entered(50).await;
    assert!(worker.health.is_ready());

    let start = Instant::now();
    let health = worker.health.clone();
    worker.stop().await.unwrap();
    assert!(start.elapsed() < Duration::from_secs(20), "the drain took {:?}", start.elapsed());
    assert!(!health.is_ready());
    let counts = queue.counts();
    assert_eq!(counts.unsettled, 0, "{counts:?}");
    assert_eq!(counts.ready + counts.acks, total, "{counts:?}");
    assert!(counts.releases >= 1 && counts.ready > 100, "the worker was idle when it was told to drain: {counts:?}");
    assert_eq!(world.stage.runs().len(), counts.acks, "what ran was acked, and nothing else");
    assert_eq!(world.all_effects().await.len(), counts.acks);
    assert!(world.rows(&store).await.is_empty());
    // A worker that ends cuts off its own looks at the database, whose statements the server finishes.
    until("no transaction is open", || async { world.sessions("xact_start IS NOT NULL").await == 0 }).await;

    elsewhere.rollback().await.unwrap();
    let worker = world.start(&store, queue.clone(), |worker| worker);
    world.journal.processed(total).await;
    worker.stop().await.unwrap();
    let mut expected: Vec<_> = (1..total).map(|n| (format!("order-{n}"), 1)).chain([("held".to_owned(), 1)]).collect();
    expected.sort();
    assert_eq!(world.all_effects().await, expected);
    world.end().await;
}

/// The drain does not wait for an answer.
#[tokio::test]
async fn a_message_that_is_cut_off_while_the_database_is_silent_goes_back_to_the_broker() {
    let Some(url) = variable("DATABASE_URL") else { return };
    let (world, relay) = (World::at(&url).await, Relay::start(&url).await);
    let store = Postgres::options(relay.url(&world.url)).schema(&world.schema).connect().await.unwrap();
    let queue = world.broker.queue("orders");
    let worker = world.start(&store, queue.clone(), |worker| worker.shutdown_timeout(Duration::from_millis(500)));
    world.publish(&Order::new("cut-off", Act::Hold));
    world.stage.entered(1).await;
    relay.delay(Duration::from_secs(600));
    worker.stop().await.unwrap();
    assert_eq!(queue.counts().ready, 1);
    relay.cut();
    world.end().await;
}
