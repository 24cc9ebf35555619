//! Workers and servers that are killed in the middle of messages.

use std::time::Duration;

use idem_conformance::{soon, until};
use idem_core::key_value::KeyValue;
use idem_core::{BoxError, Delivery, Error, Handler, Key, KeyError, State, Worker};
use idem_redis::{Redis, RedisWrites};
use idem_test::{Broker, Publication};
use tokio::task::JoinHandle;

use crate::common::{self, Server, unique};

/// How many messages there are.
const MESSAGES: i64 = 600;

struct Count;

impl Handler for Count {
    const NAME: &'static str = "count";
    type Message = String;
    type Input = String;
    type Params = (State<String>,);
    type Connection = RedisWrites;

    fn key(id: &String, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(id)
    }

    async fn handle(id: String, (State(name),): Self::Params, writes: &mut RedisWrites) -> Result<(), BoxError> {
        writes.incr_by(&name, 1).h_incr_by(format!("{name}-each"), id, 1);
        Ok(())
    }
}

fn start(redis: KeyValue<Redis>, name: &str, broker: &Broker) -> JoinHandle<Result<(), Error>> {
    let worker = Worker::new(name, redis, broker.queue("orders"))
        .state(name.to_owned())
        .handler::<Count>()
        .lease_duration(Duration::from_millis(300));
    tokio::spawn(worker.run_until(std::future::pending()))
}

fn publish(broker: &Broker) {
    for number in 0..MESSAGES {
        broker.publish("orders", Publication::new(format!("\"m-{number}\"")));
    }
}

/// Returns the counter, `None` while the server is away.
async fn counted(redis: &redis::Client, name: &str) -> Option<i64> {
    let mut client = redis.get_multiplexed_async_connection().await.ok()?;
    let count: Option<i64> = redis::cmd("GET").arg(name).query_async(&mut client).await.ok()?;
    Some(count.unwrap_or_default())
}

async fn reached(redis: &redis::Client, name: &str, least: i64) {
    until(async || counted(redis, name).await.is_some_and(|count| count >= least)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_lose_and_double_nothing() {
    let Some(world) = common::world().await else { return };
    let client = redis::Client::open(std::env::var("REDIS_URL").unwrap()).unwrap();
    let (broker, name) = (Broker::new(), unique("n"));
    publish(&broker);
    for kill in 1..5 {
        // Dropping the future is like a crash: no lease is given up.
        let worker = start(world.redis.clone(), &name, &broker);
        reached(&client, &name, kill * MESSAGES / 5).await;
        worker.abort();
        assert!(worker.await.unwrap_err().is_cancelled());
    }
    let worker = start(world.redis.clone(), &name, &broker);
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
    let worker = start(Redis::connect(&server.url()).await.unwrap(), &name, &broker);
    for kill in 1..4 {
        reached(&client, &name, kill * MESSAGES / 5).await;
        server.kill();
        server.start();
    }
    soon(broker.idle()).await;
    assert_eq!(counted(&client, &name).await, Some(MESSAGES));
    worker.abort();
}
