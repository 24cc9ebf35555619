//! The start: the URL and the settings of the server.

use std::time::Duration;

use idem_conformance::texts;
use idem_core::key_value::{Completed, KeyValueStore};
use idem_core::store::StoreError;
use idem_core::{Error, Fingerprint};
use idem_redis::{Redis, RedisWrites};
use uuid::Uuid;

use crate::common::{Server, id};

async fn refused(url: &str) -> String {
    let error = Redis::connect(url).await.expect_err("it connects");
    texts(&error)
}

#[tokio::test]
async fn a_cluster_or_sentinel_is_refused_with_the_reason() {
    for url in ["redis-cluster://localhost:7000", "redis+sentinel://localhost:26379/main"] {
        let text = refused(url).await;
        assert!(text.contains("one node") && text.contains("redis://host:6379"), "{text}");
    }
}

#[tokio::test]
async fn a_node_of_a_cluster_is_refused_whatever_its_url_says() {
    let Some(mut server) = Server::run().await else { return };
    server.restart(&["--cluster-enabled", "yes"]).await;
    let text = refused(&server.url()).await;
    assert!(text.contains("is a cluster") && text.contains("single server"), "{text}");
}

#[tokio::test]
async fn no_error_has_the_password() {
    for url in ["redis://:s3cret@127.0.0.1:1/0", "redis://:s3cret@[/0", "http://:s3cret@localhost"] {
        let text = refused(url).await;
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(matches!(Redis::connect("nonsense").await, Err(Error::Config(_))));
}

#[tokio::test]
async fn a_server_that_evicts_is_refused_at_the_start_and_later() {
    let Some(server) = Server::run().await else { return };
    let redis = Redis::connect(&server.url()).await.unwrap();
    for policy in ["volatile-lru", "allkeys-random"] {
        server.set("maxmemory-policy", policy).await;
        let text = refused(&server.url()).await;
        assert!(text.contains(policy) && text.contains("noeviction"), "{text}");
        assert!(redis.store().check(Duration::from_secs(60)).await.is_err(), "an operator has changed it");
    }
    server.set("maxmemory-policy", "noeviction").await;
    redis.store().check(Duration::from_secs(60)).await.unwrap();
}

/// A server without memory refuses a completion as a whole, and takes it once it has memory again.
#[tokio::test]
async fn a_server_without_memory_writes_nothing_of_a_message() {
    let Some(server) = Server::run().await else { return };
    let (redis, id, token) = (Redis::connect(&server.url()).await.unwrap(), id(), Uuid::new_v4());
    let (store, long) = (redis.store(), Duration::from_secs(60));
    store.acquire(&id, Fingerprint::of(b"{}"), token, long, long).await.unwrap();
    let mut writes = RedisWrites::default();
    writes.del("n").set("n", "1");
    server.set("maxmemory", "1").await;
    let full = store.complete(&id, token, long, &writes).await;
    assert!(matches!(full, Err(StoreError::Unavailable(_))), "{full:?}");
    server.set("maxmemory", "0").await;
    assert_eq!(store.complete(&id, token, long, &writes).await.unwrap(), Completed::Yes);
}
