//! A database outage longer than the broker lets deliveries stay unsettled.

use std::time::Duration;

use idem_faults::{Act, Broker, Nats, RabbitMq, Running, Site, Sqs, World, orders, until, variable};
use sqlx::Connection;

use crate::returns::Returns;

/// The consumer timeout with which RabbitMQ is configured, so that the worker leaves after four seconds: by then the messages
/// that are published behind the stop have been prefetched, however busy the machine is. The server itself takes nothing
/// back meanwhile. If the worker did not leave, or left more than once, the count would differ.
const TIMEOUT: Duration = Duration::from_secs(16);

/// A worker that leaves RabbitMQ before the consumer timeout, and how often its messages were returned.
struct Leaving {
    world: World,
    site: Site<RabbitMq>,
    store: idem::Postgres,
    worker: Running,
    returns: Returns,
}

impl Leaving {
    async fn start(world: World, site: Site<RabbitMq>) -> Self {
        let store = world.options().connections(64).connect().await.unwrap();
        let rabbit = idem::RabbitMq::options(&site.address).consumer_timeout(TIMEOUT).connect().await.unwrap();
        let (returns, source) = (Returns::default(), rabbit.queue(&site.name).await.unwrap());
        let worker = world.start(&store, source, |worker| returns.watch(&world.journal, worker));
        Self { world, site, store, worker, returns }
    }

    /// Publishes three messages, which are processed.
    async fn processes(&self) {
        publish(&self.site, "before").await;
        self.world.journal.processed(3).await;
    }

    /// Publishes three messages, which the client prefetches, whether or not the worker takes them. They go back, and the
    /// worker stays away.
    async fn gets_messages_back(&self) {
        publish(&self.site, "meanwhile").await;
        until("what is held goes back", || async { !self.worker.health.broker() && self.site.left().await == 3 }).await;
        // The duration itself is tested: four times the delay after which the worker leaves.
        for _ in 0..TIMEOUT.as_millis() / 100 {
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert!(!self.worker.health.broker(), "it subscribes although nothing can be written");
        }
        assert_eq!(self.site.left().await, 3);
    }

    /// All messages are processed, and were returned once at most.
    async fn ends_with(self, messages: usize) -> World {
        self.world.journal.processed(messages).await;
        until("all is settled", || async { self.site.left().await == 0 }).await;
        until("the worker is ready", || async { self.worker.health.is_ready() }).await;
        self.worker.stop().await.unwrap();
        assert_eq!(self.world.all_effects().await.len(), messages);
        assert_eq!(self.returns.most(), 1, "each was returned once");
        assert!(self.world.rows(&self.store).await.is_empty());
        self.site.end().await;
        self.world
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_however_long_it_lasts() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let Some(site) = Site::new().await else { return };
    let mut server = idem_services::Postgres::start().unwrap();
    let leaving = Leaving::start(World::at(server.url()).await, site).await;
    leaving.processes().await;
    server.stop().unwrap();
    leaving.gets_messages_back().await;
    server.start_again().unwrap();
    leaving.ends_with(6).await;
}

/// A hot standby answers every query and refuses every write. The server is stopped, comes back as a standby, and is promoted
/// once the worker has been away for long.
#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_while_the_database_can_only_be_read() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let Some(site) = Site::new().await else { return };
    let mut server = idem_services::Postgres::start().unwrap();
    let signal = server.home().join("data/standby.signal");
    let leaving = Leaving::start(World::at(server.url()).await, site).await;
    leaving.processes().await;
    server.stop().unwrap();
    std::fs::write(signal, "").unwrap();
    server.start_again().unwrap();
    let mut reader = sqlx::PgConnection::connect(server.url()).await.unwrap();
    assert!(sqlx::query_scalar::<_, bool>("SELECT pg_is_in_recovery()").fetch_one(&mut reader).await.unwrap());
    leaving.gets_messages_back().await;
    sqlx::query("SELECT pg_promote()").execute(&mut reader).await.unwrap();
    leaving.ends_with(6).await;
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
    let Some(site) = Site::new().await else { return };
    let leaving = Leaving::start(world, site).await;
    until("the worker consumes", || async { leaving.worker.health.is_ready() }).await;
    if after_a_claim {
        leaving.processes().await;
    }
    let mut other = leaving.world.pool.begin().await.unwrap();
    let lock = leaving.world.stage.sql("LOCK TABLE {schema}.processed_messages");
    sqlx::query(lock).execute(&mut *other).await.unwrap();
    leaving.gets_messages_back().await;
    other.rollback().await.unwrap();
    leaving.ends_with(if after_a_claim { 6 } else { 3 }).await.end().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_what_is_held_to_other_workers_of_nats() {
    leaves_what_is_held_to_other_workers::<Nats>().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leaves_what_is_held_to_other_workers_of_sqs() {
    leaves_what_is_held_to_other_workers::<Sqs>().await;
}

/// The leases are extended while a worker lives, so a worker that has lost its database would keep what it holds from one
/// that reaches its own.
async fn leaves_what_is_held_to_other_workers<B: Broker>() {
    let Some(beside) = World::new().await else { return };
    let Some(site) = Site::<B>::new().await else { return };
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
