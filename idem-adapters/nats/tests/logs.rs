//! The log of a subscription. This test has a separate process, because other tests beside it would decide whether a
//! line is logged.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "on_nats/common/mod.rs"]
mod common;

use common::{World, subscribe_options};
use idem_core::Source;

#[tokio::test]
async fn a_consumer_without_room_for_a_second_worker_is_named_with_the_remedy() {
    let Some(world) = World::new().await else { return };
    let (text, subscriber) = idem_conformance::captured();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    for (pending, is_named) in [(7, true), (8, false), (-1, false)] {
        world.consumer(|config| config.max_ack_pending = pending).await;
        let before = text.to_string().len();
        let mut stream = world.source().await;
        stream.subscribe(subscribe_options(4)).await.unwrap();
        stream.close().await;
        let log = text.to_string().split_off(before);
        let is_it = |line: &str| {
            ["WARN", &world.stream, "max_ack_pending=7", "max_unsettled=4", "set it to -1"]
                .iter()
                .all(|part| line.contains(part))
        };
        assert_eq!(log.lines().any(is_it), is_named, "{pending}: {log}");
        assert_eq!(log.contains("little or nothing for a second worker"), is_named, "{pending}: {log}");
        world.delete_consumer().await;
    }
}
