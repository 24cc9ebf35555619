//! The loop by hand from a real broker: the broker's own client, and the baseline's transaction.

use std::sync::Arc;

use anyhow::Result;
use bytes::Bytes;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::times::Times;
use crate::by_hand::ByHand;

/// A consumer of a broker's client, as its documentation shows it.
pub(crate) trait Consumer: Sized {
    /// Settles one delivery.
    type Ack: Send + 'static;

    /// Subscribes to an existing queue, stream or topic.
    async fn subscribe(address: &str, name: &str, concurrency: u16) -> Result<Self>;

    /// Returns the next delivery. Cancel safe.
    async fn next(&mut self) -> Result<(Bytes, Self::Ack)>;

    /// Acks a delivery whose transaction is committed.
    fn ack(ack: Self::Ack) -> impl Future<Output = Result<()>> + Send;
}

/// Processes messages until this many are processed, `concurrency` at once.
pub(crate) async fn run<C: Consumer>(
    mut consumer: C,
    by_hand: &ByHand,
    concurrency: usize,
    times: &Times,
    messages: usize,
) -> Result<()> {
    let room = Arc::new(Semaphore::new(concurrency));
    let mut tasks = JoinSet::new();
    loop {
        let permit = room.clone().acquire_owned().await?;
        let (payload, ack) = tokio::select! {
            () = times.reached(messages) => break,
            next = consumer.next() => next?,
        };
        let (by_hand, times) = (by_hand.clone(), times.clone());
        tasks.spawn(async move {
            by_hand.process(&payload).await?;
            times.committed(payload);
            C::ack(ack).await?;
            times.processed();
            drop(permit);
            anyhow::Ok(())
        });
        while let Some(processed) = tasks.try_join_next() {
            processed??;
        }
    }
    while let Some(processed) = tasks.join_next().await {
        processed??;
    }
    Ok(())
}
