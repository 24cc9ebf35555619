//! The steps of which the cases consist.

use std::time::Duration;

use idem_core::{Acker, Delivery, Settled, Source, SubscribeOptions};

use crate::{soon, until};

use super::world::World;

/// The options that most cases use.
pub(super) fn subscribe_options(max_unsettled: u16) -> SubscribeOptions {
    SubscribeOptions::new("billing", max_unsettled)
}

/// An open source.
pub(super) async fn open<W: World>(world: &W, max_unsettled: u16) -> W::Source {
    let mut source = world.source().await;
    soon(source.subscribe(subscribe_options(max_unsettled))).await.unwrap();
    source
}

/// The next delivery, which must exist.
pub(super) async fn next<S: Source>(source: &mut S) -> (Delivery, S::Acker) {
    soon(source.next()).await.unwrap()
}

/// Acks a delivery that must not be stale.
pub(super) async fn ack(acker: impl Acker) {
    let settled = soon(acker.ack()).await.unwrap();
    assert_ne!(settled, Settled::Stale, "the delivery was still ours");
}

/// Takes the next delivery and acks it.
pub(super) async fn take<S: Source>(source: &mut S) -> Delivery {
    let (delivery, acker) = next(source).await;
    ack(acker).await;
    delivery
}

/// Waits until the broker counts `ready` messages as ready: a count may trail the broker's replies.
pub(super) async fn until_ready<W: World>(world: &W, ready: usize) {
    until(async || world.ready().await == ready).await;
}

/// The broker's ready count for this many waiting and unsettled messages.
pub(super) fn counted<W: World>(waiting: usize, unsettled: usize) -> usize {
    waiting + if W::FEATURES.counts_unsettled { unsettled } else { 0 }
}

/// Asserts that nothing arrives. A broker has no signal for "nothing to send", so this waits a little.
pub(super) async fn nothing_comes<S: Source>(source: &mut S) {
    let came = tokio::time::timeout(Duration::from_millis(100), source.next()).await;
    assert!(
        came.is_err(),
        "nothing was to come, but this came: {:?}",
        came.map(|next| next.map(|(delivery, _)| delivery))
    );
}
