//! The tasks of a running worker.

use std::sync::Arc;

use async_channel::{Receiver, unbounded};
use tokio::task::{JoinError, JoinSet};

use crate::park::{self, Arrival, Arrivals};
use crate::runtime::Pipeline;
use crate::store::ConnectionShare;
use crate::{Source, Store};

use super::start::Started;
use super::{housekeeping, lane, outbox, receive};

/// A running worker. Dropping it ends all of its tasks.
pub(super) struct Tasks<S: Store, Src: Source> {
    pub(super) pipeline: Arc<Pipeline<S>>,
    pub(super) queues: Arc<Arrivals<Src::Acker>>,
    /// What waits for a lane, or to be stored.
    pub(super) waiting: [Receiver<Arrival<Src::Acker>>; 2],
    pub(super) receiving: JoinSet<Src>,
    /// Tasks that must finish their deliveries or rows before the worker ends.
    pub(super) working: JoinSet<()>,
    _beside: JoinSet<()>,
    _connections: ConnectionShare,
}

impl<S: Store, Src: Source> Tasks<S, Src> {
    pub(super) fn spawn(started: Started<S, Src>) -> Self {
        let Started { pipeline, mut source, options, connections } = started;
        let settings = &pipeline.settings;
        let stores_beside_lanes = !settings.inbox && settings.is_unordered();
        let (to_lanes, lanes) = unbounded();
        // With an order, the waiting deliveries store themselves.
        let (to_store, stored) = if stores_beside_lanes { unbounded() } else { (to_lanes.clone(), lanes.clone()) };
        let (to_park, parked) = unbounded();
        let queues = Arc::new(Arrivals { lanes: to_lanes, parked: to_park, to_store });
        let waiting = [lanes.clone(), stored.clone()];
        let mut working = JoinSet::new();
        if settings.inbox || stores_beside_lanes {
            let to_park = queues.parked.clone();
            spawn(&mut working, &pipeline, "storing", |at| lane::store(at, stored, to_park));
        }
        if !settings.inbox {
            for _ in 0..settings.concurrency {
                working.spawn(lane::run(pipeline.clone(), lanes.clone(), queues.parked.clone()));
            }
        }
        let to_all = queues.clone();
        spawn(&mut working, &pipeline, "parked", |at| park::run(at, parked, to_all));
        spawn(&mut working, &pipeline, "inbox", crate::inbox::run);
        spawn(&mut working, &pipeline, "calls", crate::call::run);
        let beside = look_after(&pipeline);
        let (mut receiving, at, to) = (JoinSet::new(), pipeline.clone(), queues.clone());
        // In a spawned task, because `main` runs on a thread outside the runtime's worker threads: waking that thread for each
        // delivery took about 40 microseconds of CPU time.
        receiving.spawn(async move {
            at.defect.task("receiving", receive::run(&at, &mut source, &options, &to)).await;
            source
        });
        Self { pipeline, queues, waiting, receiving, working, _beside: beside, _connections: connections }
    }

    /// Waits until the worker must drain: `shutdown` completes, a task panics, or receiving ends. In the last case,
    /// returns the result of the receiving task.
    pub(super) async fn run(&mut self, shutdown: impl Future<Output = ()>) -> Option<Result<Src, JoinError>> {
        tokio::select! {
            () = shutdown => None,
            () = self.pipeline.defect.seen() => None,
            ended = self.receiving.join_next() => ended,
        }
    }
}

/// Spawns the background tasks, which run until the worker ends.
fn look_after<S: Store>(pipeline: &Arc<Pipeline<S>>) -> JoinSet<()> {
    let mut beside = JoinSet::new();
    spawn(&mut beside, pipeline, "watch of the database", |at| async move { at.outage.watch(&at.store).await });
    spawn(&mut beside, pipeline, "gauges", |at| async move { housekeeping::stats(&at).await });
    let of = pipeline.lag.subscribe();
    spawn(&mut beside, pipeline, "lag", |at| async move { housekeeping::source_lag(&at.consumer, of).await });
    spawn(&mut beside, pipeline, "pruning", |at| async move { housekeeping::prune(&at).await });
    spawn(&mut beside, pipeline, "signs of life", |at| async move { housekeeping::record_seen(&at).await });
    if pipeline.outbox.is_some() {
        spawn(&mut beside, pipeline, "watch of the outbox", |at| async move { outbox::watch(&at).await });
    }
    beside
}

/// Spawns a task. A panic in it drains the worker.
fn spawn<S: Store, W: Future<Output = ()> + Send + 'static>(
    tasks: &mut JoinSet<()>,
    pipeline: &Arc<Pipeline<S>>,
    name: &'static str,
    work: impl FnOnce(Arc<Pipeline<S>>) -> W,
) {
    let (pipeline, work) = (pipeline.clone(), work(pipeline.clone()));
    tasks.spawn(async move { pipeline.defect.task(name, work).await.unwrap_or(()) });
}
