//! The log and the gauge of a partition that is stalled. This test has a separate process, because the consumer's
//! thread reports both.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic is how a test fails")]

#[path = "on_kafka/common/mod.rs"]
mod common;

use std::time::Duration;

use common::{LONG, World, next};
use idem_core::{Acker, Source};
use metrics_util::debugging::{DebugValue, DebuggingRecorder};

#[tokio::test]
async fn a_partition_that_is_stalled_is_an_error_in_the_log_and_counted() {
    let Some(world) = World::with(2).await else { return };
    let (text, subscriber) = idem_conformance::captured();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let recorder = DebuggingRecorder::new();
    let metrics = recorder.snapshotter();
    recorder.install().unwrap();

    world.publish("x").await;
    // There is no such record.
    world.commit(0, 100);
    let mut topic = world.open(4).await;
    world.publish_to(1, "one").await;
    next(&mut topic).await.1.ack().await.unwrap();
    let logged = async {
        while !text.to_string().contains("a partition is stalled") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(LONG, logged).await.expect("nothing is logged");

    let text = text.to_string();
    let line = text.lines().find(|line| line.contains("a partition is stalled")).unwrap();
    for part in ["ERROR", &format!("topic={}", world.topic), "partition=0", "100"] {
        assert!(line.contains(part), "{part} is not in: {line}");
    }
    let stalled = metrics.snapshot().into_vec().into_iter().find_map(|(key, _, _, value)| {
        let is_it = key.key().name() == "idem_kafka_stalled_partitions"
            && key.key().labels().any(|label| label.value() == world.topic);
        is_it.then_some(value)
    });
    assert_eq!(stalled, Some(DebugValue::Gauge(1.0.into())));
    topic.close().await;
}
