//! The log of a classic queue. This test has a separate process, because other tests beside it would decide whether a line
//! is logged.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

#[path = "on_rabbitmq/common/mod.rs"]
mod common;

use common::World;

#[tokio::test]
async fn a_classic_queue_is_a_warning_with_what_is_given_up() {
    let Some(world) = World::empty().await else { return };
    let (text, subscriber) = idem_conformance::captured();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    world.declare("classic", &[]).await;
    world.rabbit().await.classic_queue(&world.queue).await.unwrap();
    world.delete().await;
    let text = text.to_string();
    let is_it = |line: &&str| ["WARN", "loses its messages", &*world.queue].iter().all(|part| line.contains(part));
    let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no line of it: {text}"));
    for part in ["a classic queue loses its messages with its node", "idem cannot notice", "move to a quorum queue"] {
        assert!(line.contains(part), "{part:?} is not in {line:?}");
    }
}
