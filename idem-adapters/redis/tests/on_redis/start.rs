//! The start: the URL and the settings of the server.

use idem_conformance::texts;
use idem_core::Error;
use idem_redis::Redis;

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
async fn no_error_has_the_password() {
    for url in ["redis://:s3cret@127.0.0.1:1/0", "redis://:s3cret@[/0", "http://:s3cret@localhost"] {
        let text = refused(url).await;
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(matches!(Redis::connect("nonsense").await, Err(Error::Config(_))));
}
