//! A database outage longer than the broker lets deliveries stay unsettled.

use std::time::Duration;

use idem_faults::{Act, Broker, Nats, RabbitMq, Site, World, orders, until, variable};
use sqlx::Connection;

use crate::returns::Returns;

/// RabbitMQ is configured with a consumer timeout of 16 seconds, so that the worker leaves after four: by then the messages
/// that are published behind the stop have been prefetched, however busy the machine is. The server itself takes nothing
/// back meanwhile. If the worker did not leave, or left more than once, the count would differ.
#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_however_long_it_lasts() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let Some(site) = Site::<RabbitMq>::new().await else { return };
    let mut server = idem_services::Postgres::start().unwrap();
    let world = World::at(server.url()).await;
    let store = world.options().connections(64).connect().await.unwrap();
    let rabbit =
        idem::RabbitMq::options(&site.address).consumer_timeout(Duration::from_secs(16)).connect().await.unwrap();
    let (returns, source) = (Returns::default(), rabbit.queue(&site.name).await.unwrap());
    let worker = world.start(&store, source, |worker| returns.watch(&world.journal, worker));

    publish(&site, "before").await;
    world.journal.processed(3).await;
    server.stop().unwrap();
    // The client prefetches them, whether or not the worker takes them.
    publish(&site, "meanwhile").await;
    until("what is held goes back", || async { !worker.health.broker() && site.left().await == 3 }).await;
    // The duration itself is tested: three times the delay after which the worker leaves.
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert!(!worker.health.broker());
    assert_eq!(site.left().await, 3);
    server.start_again().unwrap();

    world.journal.processed(6).await;
    until("all is settled", || async { site.left().await == 0 }).await;
    assert!(worker.health.is_ready());
    worker.stop().await.unwrap();
    assert_eq!(world.all_effects().await.len(), 6);
    assert_eq!(returns.most(), 1, "each was returned once");
    assert!(world.rows(&store).await.is_empty());
    site.end().await;
}

/// A hot standby answers every query and refuses every write. The server is stopped, comes back as a standby, and is promoted
/// after three times the delay after which the worker leaves.
#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_while_the_database_can_only_be_read() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let Some(site) = Site::<RabbitMq>::new().await else { return };
    let mut server = idem_services::Postgres::start().unwrap();
    let signal = server.home().join("data/standby.signal");
    let world = World::at(server.url()).await;
    let store = world.options().connections(64).connect().await.unwrap();
    let rabbit =
        idem::RabbitMq::options(&site.address).consumer_timeout(Duration::from_secs(16)).connect().await.unwrap();
    let (returns, source) = (Returns::default(), rabbit.queue(&site.name).await.unwrap());
    let worker = world.start(&store, source, |worker| returns.watch(&world.journal, worker));

    publish(&site, "before").await;
    world.journal.processed(3).await;
    server.stop().unwrap();
    std::fs::write(signal, "").unwrap();
    server.start_again().unwrap();
    let mut reader = sqlx::PgConnection::connect(server.url()).await.unwrap();
    assert!(sqlx::query_scalar::<_, bool>("SELECT pg_is_in_recovery()").fetch_one(&mut reader).await.unwrap());
    publish(&site, "meanwhile").await;
    until("what is held goes back", || async { !worker.health.broker() && site.left().await == 3 }).await;
    // The duration itself is tested.
    for _ in 0..120 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!worker.health.broker(), "it subscribes although nothing can be written");
    }
    sqlx::query("SELECT pg_promote()").execute(&mut reader).await.unwrap();

    world.journal.processed(6).await;
    until("all is settled", || async { site.left().await == 0 }).await;
    worker.stop().await.unwrap();
    assert_eq!(world.all_effects().await.len(), 6);
    assert_eq!(returns.most(), 1, "each was returned once");
    site.end().await;
}

/// The server answers, and no claim can be written while another transaction has locked the table of claims.
#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_while_the_table_of_claims_is_locked() {
    locked(true).await;
}

/// No connection has prepared the statement of the claim, which waits for the lock as well, and longer than a claim.
#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_if_the_table_was_locked_before_the_first_claim() {
    locked(false).await;
}

/// Locks the table for longer than the consumer timeout, after a first claim or before any.
async fn locked(after_a_claim: bool) {
    let Some(world) = World::new().await else { return };
    let Some(site) = Site::<RabbitMq>::new().await else { return };
    let store = world.options().connections(64).connect().await.unwrap();
    let timeout = Duration::from_secs(16);
    let rabbit = idem::RabbitMq::options(&site.address).consumer_timeout(timeout).connect().await.unwrap();
    let (returns, source) = (Returns::default(), rabbit.queue(&site.name).await.unwrap());
    let worker = world.start(&store, source, |worker| returns.watch(&world.journal, worker));
    until("the worker consumes", || async { worker.health.is_ready() }).await;
    let before = if after_a_claim { 3 } else { 0 };
    if after_a_claim {
        publish(&site, "before").await;
        world.journal.processed(before).await;
    }

    let mut other = world.pool.begin().await.unwrap();
    sqlx::query(world.stage.sql("LOCK TABLE {schema}.processed_messages")).execute(&mut *other).await.unwrap();
    publish(&site, "meanwhile").await;
    until("what is held goes back", || async { !worker.health.broker() && site.left().await == 3 }).await;
    // The duration itself is tested.
    for _ in 0..timeout.as_millis() / 100 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(!worker.health.broker(), "it subscribes although no claim can be written");
    }
    other.rollback().await.unwrap();

    world.journal.processed(before + 3).await;
    until("all is settled", || async { site.left().await == 0 }).await;
    assert!(worker.health.is_ready());
    worker.stop().await.unwrap();
    assert_eq!(world.all_effects().await.len(), before + 3);
    assert_eq!(returns.most(), 1, "each was returned once");
    assert!(world.rows(&store).await.is_empty());
    site.end().await;
    world.end().await;
}

/// The leases of NATS are extended while a worker lives, so a worker that has lost its database would keep what it holds
/// from one that reaches its own.
#[tokio::test(flavor = "multi_thread")]
async fn leaves_what_is_held_to_other_workers() {
    let Some(beside) = World::new().await else { return };
    let Some(site) = Site::<Nats>::new().await else { return };
    let mut server = idem_services::Postgres::start().unwrap();
    let world = World::at(server.url()).await;
    let store = world.options().connections(64).connect().await.unwrap();
    let worker = world.start(&store, site.source().await, |worker| worker);
    publish(&site, "before").await;
    world.journal.processed(3).await;

    server.stop().unwrap();
    // It fetches them, since it waits for messages.
    publish(&site, "meanwhile").await;
    until("what is held goes back", || async { !worker.health.broker() }).await;
    let other_store = beside.options().connections(64).connect().await.unwrap();
    let other = beside.start(&other_store, site.source().await, |worker| worker);
    beside.journal.processed(3).await;
    until("all is settled", || async { site.left().await == 0 }).await;
    other.stop().await.unwrap();
    assert_eq!(beside.all_effects().await.len(), 3);

    server.start_again().unwrap();
    until("the worker is back", || async { worker.health.is_ready() }).await;
    worker.stop().await.unwrap();
    assert_eq!(world.all_effects().await.len(), 3);
    beside.end().await;
    site.end().await;
}

async fn publish<B: Broker>(site: &Site<B>, what: &str) {
    let payloads: Vec<_> = orders(what, 3, Act::Write).iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
    site.publish(&payloads).await;
}
