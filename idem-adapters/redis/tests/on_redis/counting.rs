//! A worker that counts its messages.

use std::time::Duration;

use idem_conformance::until;
use idem_core::key_value::KeyValue;
use idem_core::{BoxError, Delivery, Error, Handler, Health, Key, KeyError, State, Worker};
use idem_redis::{Redis, RedisWrites};
use idem_test::Broker;
use tokio::task::JoinHandle;

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

/// Starts a worker that adds each message of the queue `orders` to a counter of this name.
pub(crate) fn start(redis: KeyValue<Redis>, name: &str, broker: &Broker) -> (JoinHandle<Result<(), Error>>, Health) {
    let worker = Worker::new(name, redis, broker.queue("orders"))
        .state(name.to_owned())
        .handler::<Count>()
        .lease_duration(Duration::from_millis(300));
    let health = worker.health();
    (tokio::spawn(worker.run_until(std::future::pending())), health)
}

/// Returns the counter, `None` while the server is away.
pub(crate) async fn counted(redis: &redis::Client, name: &str) -> Option<i64> {
    let mut client = redis.get_multiplexed_async_connection().await.ok()?;
    let count: Option<i64> = redis::cmd("GET").arg(name).query_async(&mut client).await.ok()?;
    Some(count.unwrap_or_default())
}

pub(crate) async fn reached(redis: &redis::Client, name: &str, least: i64) {
    until(async || counted(redis, name).await.is_some_and(|count| count >= least)).await;
}
