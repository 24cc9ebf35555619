//! What is confirmed is there.

use futures_util::future::join_all;
use idem_core::Sink;

use crate::soon;

use super::steps::{consume, message, open};
use super::world::World;

/// Many messages at the same time are confirmed, and each is in the queue.
pub async fn many_messages_at_once_are_all_there<W: World>(world: W) {
    let sink = open(&world).await;
    let messages: Vec<_> = (0..1000).map(|_| message(world.to())).collect();
    let results = soon(join_all(messages.iter().map(|message| sink.publish(message)))).await;
    for result in results {
        result.unwrap();
    }
    let deliveries = consume(&world, messages.iter().map(idem_core::StagedMessage::id)).await;
    assert_eq!(deliveries.len(), messages.len(), "none is there twice");
    soon(sink.close()).await;
}

/// A copy of a message is confirmed, whether the broker stores it again or recognizes it.
pub async fn a_message_that_is_published_twice_is_confirmed_twice<W: World>(world: W) {
    let sink = open(&world).await;
    let message = message(world.to());
    soon(sink.publish(&message)).await.unwrap();
    soon(sink.publish(&message)).await.unwrap();
    consume(&world, [message.id()]).await;
    soon(sink.close()).await;
}
