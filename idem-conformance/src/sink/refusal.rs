//! Messages that the broker does not take.

use futures_util::future::join_all;
use idem_core::{Outgoing, Sink, SinkError};

use crate::soon;

use super::steps::{SECRET, consume, message, open, refused, relay, staged};
use super::world::World;

/// Among many messages under way, those that lead nowhere fail, each by itself, with their destination.
pub async fn an_unroutable_message_fails_and_its_neighbours_do_not<W: World>(world: W) {
    let sink = open(&world).await;
    let to = |number: usize| if number.is_multiple_of(5) { world.unroutable() } else { world.to() };
    let messages: Vec<_> = (0..1000).map(|number| message(to(number))).collect();
    let results = soon(join_all(messages.iter().map(|message| sink.publish(message)))).await;
    let mut confirmed = Vec::new();
    for (message, result) in messages.iter().zip(results) {
        if message.to() == world.to() {
            result.unwrap();
            confirmed.push(message.id());
        } else {
            let text = refused(result);
            assert!(text.contains(message.to()) && text.contains(sink.name()), "{text}");
        }
    }
    let deliveries = consume(&world, confirmed.iter().copied()).await;
    assert_eq!(deliveries.len(), confirmed.len());
    soon(sink.close()).await;
}

/// A message that is too large fails, and the messages beside it are stored. After that, the limit is known.
pub async fn a_message_over_the_limit_fails_and_its_neighbours_do_not<W: World>(world: W) {
    let sink = open(&world).await;
    let large = staged(Outgoing::new(world.to(), vec![b'x'; W::TOO_LARGE]));
    let small: Vec<_> = (0..20).map(|_| message(world.to())).collect();
    let (refusal, results) =
        tokio::join!(relay(&sink, &large), join_all(small.iter().map(|message| relay(&sink, message))));
    let text = refused(refusal);
    assert!(text.contains(&W::TOO_LARGE.to_string()), "{text}");
    for result in results {
        result.unwrap();
    }
    assert!(sink.limit().is_some_and(|limit| limit < W::TOO_LARGE), "{:?}", sink.limit());
    let deliveries = consume(&world, small.iter().map(idem_core::StagedMessage::id)).await;
    assert!(deliveries.iter().all(|delivery| delivery.payload().len() == 2));
    soon(sink.close()).await;
}

/// A message with a value that the broker cannot carry fails, and those beside it are stored.
pub async fn what_the_broker_cannot_carry_fails_by_itself<W: World>(world: W) {
    let sink = open(&world).await;
    for (unpublishable, says) in world.unpublishable() {
        let (unpublishable, fit) = (staged(unpublishable.header("token", SECRET)), message(world.to()));
        let (refusal, result) = soon(async { tokio::join!(relay(&sink, &unpublishable), relay(&sink, &fit)) }).await;
        result.unwrap();
        let text = refused(refusal);
        assert!(text.contains(says), "{text}");
    }
    soon(sink.close()).await;
}

/// A sink of something that does not exist fails at the start, with its name.
pub async fn a_missing_place_is_named_at_the_start<W: World>(world: W) {
    let Some((sink, name)) = world.missing().await else { return };
    let opened = soon(sink.open()).await;
    assert!(matches!(opened, Err(SinkError::Message(_))), "{opened:?}");
    let text = refused(opened);
    assert!(text.contains(&name) && text.contains(':'), "it names no fix: {text}");
    soon(sink.close()).await;
}
