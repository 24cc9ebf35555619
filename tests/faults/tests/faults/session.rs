//! A Kafka outage longer than the session timeout of a group member, with default settings.

use std::time::{Duration, Instant};

use idem::Kafka;
use idem_brokers::Broker;
use idem_faults::{Act, Mode, Order, World, fresh, orders, until, variable};
use tokio::task::spawn_blocking;

/// `session.timeout.ms` is 8 seconds.
const AWAY: Duration = Duration::from_secs(12);

#[tokio::test(flavor = "multi_thread")]
async fn kafka_is_consumed_again_soon_after_it_was_away_for_longer_than_a_session() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let server = spawn_blocking(idem_services::Kafka::start).await.unwrap().unwrap();
    let (address, name, world) = (server.url().to_owned(), fresh("idem-session"), World::new().await.unwrap());
    let store = world.options().connections(96).connect().await.unwrap();
    let topic = idem_brokers::Kafka::connect(&address, &name).await.unwrap();
    topic.create().await.unwrap();
    let mut workers = Vec::new();
    for _ in 0..2 {
        let source = Kafka::connect(&address).await.unwrap().topic(&name).await.unwrap().group(&name);
        workers.push(world.start(&store, source, |worker| Mode::Direct.tune(worker)));
    }
    until("both have joined", || async { workers.iter().all(|worker| worker.health.is_ready()) }).await;
    let orders = orders("order", 400, Act::Take(20));
    let payloads: Vec<_> = orders.iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
    topic.publish(&payloads).await.unwrap();
    let effects = "SELECT count(*) FROM {schema}.effects";
    until("they are at work", || async { world.number(effects).await >= 100 }).await;

    let server = spawn_blocking(move || {
        let mut server = server;
        server.kill().unwrap();
        std::thread::sleep(AWAY);
        server.start_again().unwrap();
        server
    });
    let server = server.await.unwrap();
    let back = Instant::now();
    let last = [serde_json::to_vec(&Order::new("last", Act::Write)).unwrap()];
    // A broker that listens again may not serve yet.
    until("it can be published to", || async {
        let published = async { idem_brokers::Kafka::connect(&address, &name).await?.publish(&last).await };
        matches!(tokio::time::timeout(Duration::from_secs(5), published).await, Ok(Ok(())))
    })
    .await;
    until("all is processed", || async { world.number(effects).await >= 401 }).await;
    let took = back.elapsed();
    println!("all was processed {took:?} after Kafka was back");
    // The session timeout and some time for the rest: on a busy machine, the broker itself takes some of it before it serves.
    // It was 46 seconds with the client's defaults.
    assert!(took < Duration::from_secs(30), "{took:?}");
    for worker in workers {
        worker.stop().await.unwrap();
    }
    assert_eq!(world.number("SELECT count(DISTINCT id) FROM {schema}.effects").await, 401);
    assert_eq!(world.number(effects).await, 401);
    spawn_blocking(move || drop(server)).await.unwrap();
    world.end().await;
}
