//! Workers and servers that are killed in the middle of messages.

use idem_conformance::soon;
use idem_redis::Redis;
use idem_test::{Broker, Publication};

use crate::common::{self, Server, unique};
use crate::counting::{counted, reached, start};

/// How many messages there are.
const MESSAGES: i64 = 600;

fn publish(broker: &Broker) {
    for number in 0..MESSAGES {
        broker.publish("orders", Publication::new(format!("\"m-{number}\"")));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_lose_and_double_nothing() {
    let Some(world) = common::world().await else { return };
    let client = redis::Client::open(std::env::var("REDIS_URL").unwrap()).unwrap();
    let (broker, name) = (Broker::new(), unique("n"));
    publish(&broker);
    for kill in 1..5 {
        // Dropping the future is like a crash: no lease is given up.
        let (worker, _) = start(world.redis.clone(), &name, &broker);
        reached(&client, &name, kill * MESSAGES / 5).await;
        worker.abort();
        assert!(worker.await.unwrap_err().is_cancelled());
    }
    let (worker, _) = start(world.redis.clone(), &name, &broker);
    broker.idle().await;
    assert_eq!(counted(&client, &name).await, Some(MESSAGES));
    worker.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_and_doubles_nothing() {
    let Some(mut server) = Server::run().await else { return };
    let client = redis::Client::open(server.url()).unwrap();
    let (broker, name) = (Broker::new(), unique("n"));
    publish(&broker);
    let (worker, _) = start(Redis::connect(&server.url()).await.unwrap(), &name, &broker);
    for kill in 1..4 {
        reached(&client, &name, kill * MESSAGES / 5).await;
        server.kill();
        server.start(&[]);
    }
    soon(broker.idle()).await;
    assert_eq!(counted(&client, &name).await, Some(MESSAGES));
    worker.abort();
}
