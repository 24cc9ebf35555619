//! The log of a message that lapin cannot parse. This test has a separate process, because other tests beside it would
//! decide whether a line is logged.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "on_rabbitmq/common/mod.rs"]
mod common;

use common::{World, loss, next, subscribe_options};
use idem_core::{Acker, Source};

#[tokio::test]
async fn a_message_that_lapin_cannot_read_is_named_by_errors_in_the_log() {
    let Some(world) = World::new().await else { return };
    let (text, subscriber) = idem_conformance::captured();
    tracing::subscriber::set_global_default(subscriber).unwrap();
    let mut queue = world.open(4).await;
    world.publish_unreadable(&["x"]).await;
    loss(&mut queue).await;
    queue.subscribe(subscribe_options(4)).await.unwrap();
    next(&mut queue).await.1.ack().await.unwrap();
    queue.close().await;
    let text = text.to_string();
    for (line, part) in [("lapin cannot parse a message;", "delivery_tag=1"), ("is taken out", "dead letter")] {
        let is_it = |logged: &str| [line, part, "ERROR", &world.queue].iter().all(|part| logged.contains(part));
        assert!(text.lines().any(is_it), "{line} {part}: {text}");
    }
}
