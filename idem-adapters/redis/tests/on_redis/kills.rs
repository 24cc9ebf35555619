//! Workers and servers that are killed in the middle of messages.

use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use idem_conformance::{soon, until};
use idem_core::key_value::KeyValue;
use idem_core::{BoxError, Delivery, Error, Handler, Key, KeyError, State, Worker};
use idem_redis::{Redis, RedisWrites};
use idem_test::{Broker, Publication};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use crate::common::{self, unique};

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

/// A server of its own, with its data on disk.
struct Server {
    home: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Server {
    fn start(&mut self) {
        let mut command = Command::new("redis-server");
        command.args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "yes", "--appendfsync", "always"]);
        command.args(["--port", &self.port.to_string()]).current_dir(self.home.path());
        self.child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok();
    }

    fn kill(&mut self) {
        let mut child = self.child.take().unwrap();
        // SIGKILL.
        child.kill().unwrap();
        child.wait().unwrap();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if self.child.is_some() {
            self.kill();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_server_loses_and_doubles_nothing() {
    if common::world().await.is_none() {
        return;
    }
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut server = Server { home: TempDir::new().unwrap(), port, child: None };
    server.start();
    let url = format!("redis://127.0.0.1:{port}");
    let client = redis::Client::open(&*url).unwrap();
    let (broker, name) = (Broker::new(), unique("n"));
    reached(&client, &name, 0).await;
    publish(&broker);
    let worker = start(Redis::connect(&url).await.unwrap(), &name, &broker);
    for kill in 1..4 {
        reached(&client, &name, kill * MESSAGES / 5).await;
        server.kill();
        server.start();
    }
    soon(broker.idle()).await;
    assert_eq!(counted(&client, &name).await, Some(MESSAGES));
    worker.abort();
}
