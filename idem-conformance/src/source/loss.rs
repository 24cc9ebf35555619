//! The effects of a lost connection.

use std::pin::pin;

use idem_core::{Acker, Settled, Source};

use crate::soon;
use idem_test::Publication;

use super::steps::{ack, next, nothing_comes, open, subscribe_options, take, until_ready};
use super::world::World;

/// The end of the stream is an error, also for a `next` that waits: a source that has lost its broker never looks idle.
pub async fn a_lost_connection_is_an_error_of_next<W: World>(world: W) {
    let mut source = open(&world, 4).await;
    {
        let mut waiting = pin!(source.next());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        world.cut().await;
        assert!(soon(waiting).await.is_err());
    }
    assert!(soon(source.next()).await.is_err(), "and so is every further one");
}

/// The same value can be opened again. Unsettled messages are redelivered, unless the deliveries survive the loss, and
/// new messages arrive as well.
pub async fn open_again_after_a_loss_works<W: World>(world: W) {
    let (mut source, unsettled) = opened_again(&world).await;
    if W::FEATURES.survives {
        ack(unsettled).await;
    } else {
        let again = take(&mut source).await;
        assert_eq!(again.payload().as_ref(), b"a");
        assert_eq!(again.redelivered(), W::FEATURES.redelivered);
    }
    world.publish(Publication::new("after")).await;
    assert_eq!(take(&mut source).await.payload().as_ref(), b"after");
}

/// An ack of a delivery from before the loss must not settle a delivery from after it, even if both have the same
/// number. If the delivery outlives the connection, the ack settles that delivery.
pub async fn a_stale_ack_settles_nothing_else<W: World>(world: W) {
    let (mut source, old) = opened_again(&world).await;
    if W::FEATURES.survives {
        world.publish(Publication::new("b")).await;
        let (_, _new) = next(&mut source).await;
        assert!(old.is_live());
        ack(old).await;
        soon(source.close()).await;
        let mut another = open(&world, 4).await;
        assert_eq!(take(&mut another).await.payload().as_ref(), b"b");
        return nothing_comes(&mut another).await;
    }
    let (again, new) = next(&mut source).await;
    assert_eq!(again.payload().as_ref(), b"a");

    assert!(!old.is_live());
    assert!(new.is_live());
    assert!(matches!(soon(old.ack()).await, Ok(Settled::Stale) | Err(_)));
    drop(new);
    soon(source.close()).await;
    let mut another = open(&world, 4).await;
    assert_eq!(take(&mut another).await.payload().as_ref(), b"a");
}

/// The same holds for a release.
pub async fn a_stale_release_brings_back_nothing_else<W: World>(world: W) {
    let (mut source, old) = opened_again(&world).await;
    if W::FEATURES.survives {
        assert_ne!(soon(old.release()).await.unwrap(), Settled::Stale);
        if !W::FEATURES.releases {
            nothing_comes(&mut source).await;
            soon(source.close()).await;
            source = open(&world, 4).await;
        }
        let (again, _new) = next(&mut source).await;
        assert_eq!(again.payload().as_ref(), b"a");
        return nothing_comes(&mut source).await;
    }
    let (_, _new) = next(&mut source).await;

    assert!(matches!(soon(old.release()).await, Ok(Settled::Stale) | Err(_)));
    nothing_comes(&mut source).await;
    until_ready(&world, 0).await;
}

/// A source that was opened again after a loss, and the delivery of the message `a` from before it.
async fn opened_again<W: World>(world: &W) -> (W::Source, <W::Source as Source>::Acker) {
    world.publish(Publication::new("a")).await;
    let mut source = open(world, 4).await;
    let (_, unsettled) = next(&mut source).await;
    world.cut().await;
    while soon(source.next()).await.is_ok() {}
    soon(source.subscribe(subscribe_options(4))).await.unwrap();
    (source, unsettled)
}
