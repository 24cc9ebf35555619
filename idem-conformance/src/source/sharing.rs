//! Several sources, and dropped futures.

use std::collections::BTreeSet;
use std::pin::pin;

use idem_core::{Acker, Source};

use crate::soon;
use idem_test::Publication;

use super::steps::{ack, next, nothing_comes, open};
use super::world::World;

/// Two sources of one queue share the messages, and neither gets a message twice.
pub async fn two_sources_share_the_work<W: World>(world: W) {
    world.share().await;
    let (mut one, mut two) = (open(&world, 1).await, open(&world, 1).await);
    soon(until_both_receive(&world, &mut one, &mut two)).await;
    world.publish(Publication::new("a")).await;
    world.publish(Publication::new("b")).await;

    let (at_one, first) = next(&mut one).await;
    let (at_two, second) = next(&mut two).await;
    assert_ne!(at_one.payload(), at_two.payload());
    ack(first).await;
    ack(second).await;
    nothing_comes(&mut one).await;
    nothing_comes(&mut two).await;
}

/// Publishes and acks until each source has received something. A group may still be moving a partition from the first
/// source to the second when the second is open, and what the first has received of it by then comes again.
async fn until_both_receive<W: World>(world: &W, one: &mut W::Source, two: &mut W::Source) {
    let (mut published, mut received) = (0_u32, BTreeSet::new());
    let mut served = [false, false];
    while served != [true, true] || (received.len() as u32) < published {
        if received.len() as u32 == published {
            for number in [published, published + 1] {
                world.publish(Publication::new(number.to_be_bytes().to_vec())).await;
            }
            published += 2;
        }
        let (source, next) = tokio::select! {
            next = one.next() => (0, next),
            next = two.next() => (1, next),
        };
        let (delivery, acker) = next.unwrap();
        acker.ack().await.unwrap();
        served[source] = true;
        received.insert(delivery.payload().to_vec());
    }
}

/// Dropping a waiting `next`, again and again, neither loses nor doubles a message.
pub async fn next_is_cancel_safe<W: World>(world: W) {
    const MESSAGES: u8 = 100;
    let mut source = open(&world, 4).await;
    let publish = async {
        for number in 0..MESSAGES {
            world.publish(Publication::new(vec![number])).await;
        }
    };
    let receive = async {
        let mut seen = BTreeSet::new();
        while seen.len() < usize::from(MESSAGES) {
            // Polled once and dropped, wherever it is.
            let polled = futures_util::poll!(pin!(source.next()));
            match polled {
                std::task::Poll::Ready(delivery) => {
                    let (delivery, acker) = delivery.unwrap();
                    assert_eq!(delivery.redelivered(), W::FEATURES.presumes);
                    assert!(seen.insert(delivery.payload()[0]), "it came twice");
                    ack(acker).await;
                }
                std::task::Poll::Pending => tokio::task::yield_now().await,
            }
        }
    };
    soon(async { tokio::join!(publish, receive) }).await;
    nothing_comes(&mut source).await;
}
