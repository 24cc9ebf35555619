//! How much waits at the broker, for sources that report it.

use std::pin::pin;

use idem_core::{Lag, Source};

use crate::soon;
use idem_test::Publication;

use super::steps::{ack, counted, next, open, subscribe_options, take};
use super::world::World;

/// The lag is reported while a `next` waits, under the source name that deliveries have, and follows settling.
pub async fn lag_is_what_waits_at_the_broker<W: World>(world: W) {
    if !W::FEATURES.lag {
        let source = open(&world, 2).await;
        assert!(source.lag().is_none(), "it tells its lag, so say so in the features of this world");
        return;
    }
    for number in 0..4u8 {
        world.publish(Publication::new(vec![number])).await;
    }
    let mut source = open(&world, 2).await;
    let (first, one) = next(&mut source).await;
    let (_, two) = next(&mut source).await;
    {
        let lag = source.lag().expect("the source tells its lag");
        let mut waiting = pin!(source.next());
        assert!(futures_util::poll!(waiting.as_mut()).is_pending());
        until_lag(&lag, first.source(), counted::<W>(2, 2)).await;
        assert!(futures_util::poll!(waiting.as_mut()).is_pending(), "there is no room for another one");
    }
    ack(one).await;
    ack(two).await;
    take(&mut source).await;
    take(&mut source).await;
    let lag = source.lag().expect("it still does");
    until_lag(&lag, first.source(), 0).await;
    world.publish(Publication::new("more")).await;
    take(&mut source).await;
    until_lag(&lag, first.source(), 0).await;
}

/// A read that is dropped, that fails, or that uses a lost connection harms no delivery. After the next opening,
/// reading works again.
pub async fn lag_ends_no_subscription<W: World>(world: W) {
    if !W::FEATURES.lag {
        return;
    }
    let mut source = open(&world, 2).await;
    let old = source.lag().expect("the source tells its lag");
    // Started and dropped.
    assert!(futures_util::poll!(pin!(old.call())).is_pending() || soon(old.call()).await.is_ok());
    world.publish(Publication::new("before")).await;
    take(&mut source).await;

    world.cut().await;
    while soon(source.next()).await.is_ok() {}
    // It returns an error or a value, but does not wait forever.
    let _ = soon(old.call()).await;
    soon(source.subscribe(subscribe_options(2))).await.unwrap();
    let _ = soon(old.call()).await;
    world.publish(Publication::new("after")).await;
    let name = take(&mut source).await.source().to_owned();
    until_lag(&source.lag().expect("it tells it again"), &name, 0).await;
}

/// Waits until the lag is `messages`. A broker's counts may trail its replies.
async fn until_lag(lag: &Lag, source: &str, messages: usize) {
    soon(async {
        loop {
            let lags = lag.call().await.unwrap();
            let [(name, waiting)] = &lags[..] else { panic!("there is one source: {lags:?}") };
            assert_eq!(&**name, source);
            if *waiting == messages as u64 {
                return;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}
