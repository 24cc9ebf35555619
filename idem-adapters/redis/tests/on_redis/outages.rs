//! A server that answers, and refuses its work for a while.

use std::time::Duration;

use idem_conformance::{soon, texts, until};
use idem_core::Fingerprint;
use idem_core::key_value::{Acquired, KeyValueStore};
use idem_core::store::StoreError;
use idem_redis::Redis;
use idem_test::{Broker, Publication};
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use uuid::Uuid;

use crate::common::{self, Server, id, record, unique};
use crate::counting::{counted, reached, start};

const MINUTE: Duration = Duration::from_secs(60);

/// Lets a worker process a message, then the server refuse it, then process another one. Each command has its password.
async fn refuses_for_a_while(server: &Server, url: &str, refuse: &[(&str, &[&str])], accept: (&str, &[&str])) {
    let client = redis::Client::open(url).unwrap();
    let (broker, name) = (Broker::new(), unique("n"));
    let (worker, health) = start(Redis::connect(url).await.unwrap(), &name, &broker);
    broker.publish("orders", Publication::new("\"m-1\""));
    reached(&client, &name, 1).await;
    for (password, command) in refuse {
        server.operate(password, command).await;
    }
    broker.publish("orders", Publication::new("\"m-2\""));
    until(async || !health.database()).await;
    server.operate(accept.0, accept.1).await;
    soon(broker.idle()).await;
    assert_eq!(counted(&client, &name).await, Some(2));
    assert!(health.database());
    worker.abort();
}

/// After a failover an address may lead to a replica for a while.
#[tokio::test]
async fn a_replica_pauses_the_worker_until_it_is_promoted() {
    let Some(server) = Server::run().await else { return };
    // Nobody is there, so it keeps what it has.
    let refuse = [("", &["REPLICAOF", "127.0.0.1", "1"][..])];
    refuses_for_a_while(&server, &server.url(), &refuse, ("", &["REPLICAOF", "NO", "ONE"])).await;
}

/// Returns an address that leads to this port, and later to another one. Connections that are open stay where they are.
async fn leading_to(port: watch::Receiver<u16>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("redis://{}", listener.local_addr().unwrap());
    tokio::spawn(async move {
        loop {
            let (mut near, _) = listener.accept().await.unwrap();
            let to = *port.borrow();
            tokio::spawn(async move {
                let mut far = TcpStream::connect(("127.0.0.1", to)).await.unwrap();
                copy_bidirectional(&mut near, &mut far).await
            });
        }
    });
    url
}

/// The old server lives on as a replica, and keeps the connection.
#[tokio::test]
async fn an_address_is_followed_to_another_server_after_a_failover() {
    let (Some(old), Some(new)) = (Server::run().await, Server::run().await) else { return };
    let (lead, port) = watch::channel(old.port);
    let [at_old, at_new] = [&old, &new].map(|server| redis::Client::open(server.url()).unwrap());
    let (broker, name) = (Broker::new(), unique("n"));
    let (worker, _) = start(Redis::connect(&leading_to(port).await).await.unwrap(), &name, &broker);
    broker.publish("orders", Publication::new("\"m-1\""));
    reached(&at_old, &name, 1).await;
    lead.send_replace(new.port);
    old.operate("", &["REPLICAOF", "127.0.0.1", &new.port.to_string()]).await;
    broker.publish("orders", Publication::new("\"m-2\""));
    soon(broker.idle()).await;
    assert_eq!(counted(&at_new, &name).await, Some(1));
    worker.abort();
}

/// The client would not log in again by itself.
#[tokio::test]
async fn a_login_that_is_refused_pauses_the_worker_until_it_is_accepted() {
    let Some(mut server) = Server::run().await else { return };
    server.restart(&["--requirepass", "s3cret"]).await;
    let set = |password: &'static str| ["CONFIG", "SET", "requirepass", password];
    let refuse = [("s3cret", &set("other")[..]), ("other", &["CLIENT", "KILL", "TYPE", "normal"])];
    refuses_for_a_while(&server, &server.url_with("s3cret"), &refuse, ("other", &set("s3cret"))).await;
}

/// Another program has a key under the name of its record. That is nothing that a worker may delete.
#[tokio::test]
async fn a_message_whose_record_is_not_ours_waits_and_others_go_on() {
    let Some(world) = common::world().await else { return };
    let client = redis::Client::open(std::env::var("REDIS_URL").unwrap()).unwrap();
    let (broker, name) = (Broker::new(), unique("n"));
    let foreign = format!("idem:{name}/count/m-1");
    let _: redis::Value =
        redis::cmd("SET").arg(&foreign).arg("theirs").query_async(&mut world.client.clone()).await.unwrap();
    let (worker, health) = start(world.redis.clone(), &name, &broker);
    for id in ["m-1", "m-2", "m-3"] {
        broker.publish("orders", Publication::new(format!("\"{id}\"")));
    }
    reached(&client, &name, 2).await;
    until(async || broker.queue("orders").counts().unsettled == 1).await;
    assert!(health.database());
    let _: i64 = redis::cmd("DEL").arg(&foreign).query_async(&mut world.client.clone()).await.unwrap();
    soon(broker.idle()).await;
    assert_eq!(counted(&client, &name).await, Some(3));
    worker.abort();
}

/// All times of a record, and the one that an age is compared with, are those of Redis: the clock of a client may be wrong.
#[tokio::test]
async fn the_clock_is_that_of_redis() {
    let Some(world) = common::world().await else { return };
    let (id, token, lease) = (id(), Uuid::new_v4(), Duration::from_secs(3600));
    let mut client = world.client.clone();
    let mut time = async || {
        let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(&mut client).await.unwrap();
        seconds * 1000 + micros / 1000
    };
    let before = time().await;
    let acquired = world.redis.store().acquire(&id, Fingerprint::of(b"{}"), token, lease, 2 * lease).await.unwrap();
    let after = time().await;
    let Acquired::New { now, .. } = acquired else { panic!("{acquired:?}") };
    let now = now.duration_since(std::time::UNIX_EPOCH).unwrap().as_millis() as u64;
    assert!(now >= before && now <= after, "{before} {now} {after}");
    let until: u64 =
        redis::cmd("HGET").arg(record(&id)).arg("until").query_async(&mut world.client.clone()).await.unwrap();
    assert_eq!(until, now + 3_600_000);
}

/// What it says has no password, and names what to look at.
#[tokio::test]
async fn a_replica_and_a_refused_login_are_named() {
    let Some(mut server) = Server::run().await else { return };
    server.restart(&["--requirepass", "s3cret"]).await;
    let redis = Redis::connect(&server.url_with("s3cret")).await.unwrap();
    server.operate("s3cret", &["REPLICAOF", "127.0.0.1", "1"]).await;
    let refused = redis.store().acquire(&id(), Fingerprint::of(b"{}"), Uuid::new_v4(), MINUTE, MINUTE).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let text = texts(&redis.store().check(MINUTE).await.unwrap_err());
    assert!(text.contains("replica"), "{text}");
    server.restart(&["--requirepass", "other"]).await;
    let text = texts(&redis.store().check(MINUTE).await.unwrap_err());
    assert!(text.contains("login") && !text.contains("s3cret"), "{text}");
}
