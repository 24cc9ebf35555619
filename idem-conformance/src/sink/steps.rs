//! The steps of which the cases consist.

use std::collections::BTreeSet;

use idem_core::{Acker, Delivery, Outgoing, Sink, SinkError, Source, StagedMessage, SubscribeOptions};
use uuid::Uuid;

use crate::soon;

use super::world::World;

/// Values that no error may contain.
pub(super) const SECRET: &str = "s3ntinel";

/// An open sink.
pub(super) async fn open<W: World>(world: &W) -> W::Sink {
    let sink = world.sink().await;
    soon(sink.open()).await.unwrap();
    sink
}

/// Returns a message with this destination and a new id.
pub fn message(to: impl Into<String>) -> StagedMessage {
    staged(Outgoing::new(to, "{}"))
}

pub(super) fn staged(outgoing: Outgoing) -> StagedMessage {
    StagedMessage::new(Uuid::now_v7(), outgoing)
}

/// Publishes a message once.
///
/// # Panics
/// Panics as [`soon`] does.
pub async fn publish(sink: &impl Sink, message: &StagedMessage) -> Result<(), SinkError> {
    soon(sink.publish(message)).await
}

/// Publishes a message as a relay does: again, while the broker is unavailable.
///
/// # Panics
/// Panics as [`soon`] does.
pub async fn relay(sink: &impl Sink, message: &StagedMessage) -> Result<(), SinkError> {
    soon(async {
        loop {
            match sink.publish(message).await {
                Err(SinkError::Broker(_)) => tokio::task::yield_now().await,
                done => return done,
            }
        }
    })
    .await
}

/// Returns the text of an error of the message, which must not show its content.
pub(super) fn refused(result: Result<(), SinkError>) -> String {
    let Err(error @ SinkError::Message(_)) = result else { panic!("this is no error of the message: {result:?}") };
    assert!(!format!("{error} {error:?}").contains(SECRET), "{error}");
    error.to_string()
}

/// Subscribes and takes deliveries, in their order, until each of these ids was among them.
pub(super) async fn consume<W: World>(world: &W, ids: impl IntoIterator<Item = Uuid>) -> Vec<Delivery> {
    let mut missing: BTreeSet<String> = ids.into_iter().map(|id| id.to_string()).collect();
    let mut source = world.source().await;
    soon(source.subscribe(SubscribeOptions::new("billing", 1000))).await.unwrap();
    let mut deliveries = Vec::new();
    while !missing.is_empty() {
        let (delivery, acker) = tokio::time::timeout(std::time::Duration::from_secs(20), source.next())
            .await
            .unwrap_or_else(|_| {
                panic!("{} confirmed messages are not there", missing.len());
            })
            .unwrap();
        acker.ack().await.unwrap();
        missing.remove(&W::id(&delivery).unwrap_or_default());
        deliveries.push(delivery);
    }
    source.close().await;
    deliveries
}
