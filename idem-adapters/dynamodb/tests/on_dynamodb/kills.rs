//! Workers that are killed in the middle of messages.

use std::time::Duration;

use idem_conformance::{soon, until};
use idem_core::key_value::KeyValue;
use idem_core::{BoxError, Delivery, Error, Handler, Key, KeyError, State, Worker};
use idem_dynamodb::{DynamoDb, DynamoWrites};
use idem_test::{Broker, Publication};
use tokio::task::JoinHandle;

use crate::common::{self, World, counter, unique};

/// How many messages there are.
const MESSAGES: i64 = 60;

struct Count;

impl Handler for Count {
    const NAME: &'static str = "count";
    type Message = String;
    type Input = String;
    type Params = (State<String>,);
    type Connection = DynamoWrites;

    fn key(id: &String, _: &Delivery) -> Result<Key, KeyError> {
        Key::of(id)
    }

    async fn handle(_: String, (State(name),): Self::Params, writes: &mut DynamoWrites) -> Result<(), BoxError> {
        writes.update(counter(&name), "ADD n :one").value(":one", 1);
        Ok(())
    }
}

fn start(dynamodb: KeyValue<DynamoDb>, name: &str, broker: &Broker) -> JoinHandle<Result<(), Error>> {
    let worker = Worker::new(name, dynamodb, broker.queue("orders"))
        .state(name.to_owned())
        .handler::<Count>()
        .lease_duration(Duration::from_secs(1));
    tokio::spawn(worker.run_until(std::future::pending()))
}

async fn counted(world: &World, name: &str) -> i64 {
    world.read(name).await.map_or(0, |item| item["n"].as_n().unwrap().parse().unwrap())
}

/// All messages change one item.
#[tokio::test(flavor = "multi_thread")]
async fn killed_workers_lose_and_double_nothing() {
    let Some(world) = common::world().await else { return };
    let (broker, name) = (Broker::new(), unique("n"));
    for number in 0..MESSAGES {
        broker.publish("orders", Publication::new(format!("\"m-{number}\"")));
    }
    for kill in 1..4 {
        // Dropping the future is like a crash: no lease is given up.
        let worker = start(world.dynamodb.clone(), &name, &broker);
        until(async || counted(&world, &name).await >= kill * MESSAGES / 4).await;
        worker.abort();
        assert!(worker.await.unwrap_err().is_cancelled());
    }
    let worker = start(world.dynamodb.clone(), &name, &broker);
    soon(broker.idle()).await;
    assert_eq!(counted(&world, &name).await, MESSAGES);
    worker.abort();
}
