//! The log of a start. This test has a separate process, because lapin logs on its own threads.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "on_rabbitmq/common/mod.rs"]
mod common;

use common::{World, subscribe_options};
use idem_core::Source;
use lapin::types::AMQPValue;

#[tokio::test]
async fn a_clean_start_logs_no_error() {
    let Some(world) = World::empty().await else { return };
    let (text, subscriber) = idem_conformance::captured();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    // The server reports an argument by refusing a declaration without it.
    let arguments = [
        ("x-max-length", AMQPValue::LongLongInt(60_000)),
        ("x-overflow", AMQPValue::LongString("reject-publish".into())),
        ("x-dead-letter-exchange", AMQPValue::LongString("".into())),
    ];
    world.declare("quorum", &arguments).await;
    let mut queue = world.rabbit().await.queue(&world.queue).await.unwrap();
    queue.subscribe(subscribe_options(1)).await.unwrap();
    queue.close().await;
    let text = text.to_string();
    assert!(!text.contains("ERROR") && !text.contains("WARN"), "{text}");
}
