//! The drain of a worker: nothing new begins, what runs may finish, and the rest goes back.

use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::runtime::Pipeline;
use crate::{DeliveryOrder, Error, Source, Store};

use super::tasks::Tasks;

/// How long what was cut off may take to let go, after the patience of the drain.
const LAST_WORDS: Duration = Duration::from_secs(5);

/// Drains a worker. `early`: what became of receiving, if that has ended by itself.
pub(super) async fn drain<S: Store, Src: Source>(
    mut tasks: Tasks<S, Src>,
    early: Option<Result<Src, JoinError>>,
) -> Result<(), Error> {
    let pipeline = tasks.pipeline.clone();
    tracing::info!(consumer = pipeline.consumer, "the worker drains");
    pipeline.draining.cancel();
    pipeline.health.set_broker(false);
    tasks.queues.close();
    let ended = if early.is_some() { early } else { tasks.receiving.join_next().await };
    // Else the runtime shuts down.
    let Some(Ok(mut source)) = ended else { return Ok(()) };
    let end = Instant::now() + pipeline.settings.drain;
    unsubscribe(&pipeline, &mut source).await;
    finish(&pipeline, &mut tasks.working, end).await;
    if let Some(Err(_)) = pipeline.defect.task("close of the source", timeout(LAST_WORDS, source.close())).await {
        tracing::warn!("the connection to the broker was not closed in time");
    }
    pipeline.defect.error().map_or(Ok(()), Err)
}

/// Ends the subscription, and leaves it to deliveries that run to be settled. Where an order is kept, closing gives
/// everything back at once instead: a subscription that ends while deliveries are still held here would let the next
/// consumer go on behind them.
async fn unsubscribe<S: Store, Src: Source>(pipeline: &Pipeline<S>, source: &mut Src) {
    if pipeline.settings.order == DeliveryOrder::None
        && let Some(Err(_)) = pipeline.defect.task("drain of the source", timeout(LAST_WORDS, source.drain())).await
    {
        // A broker that hangs must not take the patience that is meant for handlers.
        tracing::warn!("the subscription was not ended in time");
    }
}

/// Waits until what runs has finished; from `end` on it is cut off.
async fn finish<S: Store>(pipeline: &Pipeline<S>, working: &mut JoinSet<()>, end: Instant) {
    if timeout_at(end, all(working)).await.is_ok() {
        return;
    }
    let patience = pipeline.settings.drain;
    tracing::warn!(?patience, "the patience of the drain has ended; what runs is rolled back");
    pipeline.stop.cancel();
    if timeout(LAST_WORDS, all(working)).await.is_err() {
        working.shutdown().await;
    }
}

async fn all(working: &mut JoinSet<()>) {
    while working.join_next().await.is_some() {}
}
