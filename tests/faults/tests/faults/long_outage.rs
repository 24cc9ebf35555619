//! A database outage longer than the broker lets deliveries stay unsettled.

use std::time::Duration;

use idem_faults::{Act, RabbitMq, Site, World, orders, until, variable};

use crate::returns::Returns;

/// RabbitMQ is configured with a consumer timeout of 16 seconds, so that the worker leaves after four: by then the messages
/// that are published behind the stop have been prefetched, however busy the machine is. The server itself takes nothing
/// back meanwhile. If the worker did not leave, or left more than once, the count would differ.
#[tokio::test(flavor = "multi_thread")]
async fn costs_each_message_one_return_however_long_it_lasts() {
    if variable("DATABASE_URL").is_none() {
        return;
    }
    let Some(site) = RabbitMq::new().await else { return };
    let mut server = idem_services::Postgres::start().unwrap();
    let world = World::at(server.url()).await;
    let store = world.options().connections(64).connect().await.unwrap();
    let rabbit =
        idem::RabbitMq::options(&site.address).consumer_timeout(Duration::from_secs(16)).connect().await.unwrap();
    let (returns, source) = (Returns::default(), rabbit.queue(&site.name).await.unwrap());
    let worker = world.start(&store, source, |worker| returns.watch(&world.journal, worker));

    let publish = async |what: &str| {
        let payloads: Vec<_> =
            orders(what, 3, Act::Write).iter().map(|order| serde_json::to_vec(order).unwrap()).collect();
        site.publish(&payloads).await;
    };
    publish("before").await;
    world.journal.processed(3).await;
    server.stop().unwrap();
    // The client prefetches them, whether or not the worker takes them.
    publish("meanwhile").await;
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
