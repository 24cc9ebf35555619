//! The tasks of a running worker.

use std::sync::Arc;

use async_channel::{Receiver, unbounded};
use tokio::task::{JoinError, JoinSet};

use crate::park::{self, Arrival, Parked};
use crate::runtime::{LeasedAcker, Pipeline};
use crate::store::ConnectionShare;
use crate::{DeliveryOrder, Source, Store, SubscribeOptions};

use super::receive::Arrivals;
use super::start::Started;
use super::{housekeeping, lane, outbox, receive};

/// A running worker. Dropping it ends all of its tasks.
pub(super) struct Tasks<S: Store, Src: Source> {
    pub(super) pipeline: Arc<Pipeline<S>>,
    pub(super) queues: Arc<Arrivals<LeasedAcker<Src::Acker>>>,
    /// What waits for a lane.
    pub(super) lanes: Receiver<Arrival<LeasedAcker<Src::Acker>>>,
    pub(super) receiving: JoinSet<Src>,
    /// Tasks that must finish their deliveries or rows before the worker ends.
    pub(super) working: JoinSet<()>,
    _beside: JoinSet<()>,
    _connections: ConnectionShare,
}

impl<S: Store, Src: Source> Tasks<S, Src> {
    pub(super) fn spawn(started: Started<S, Src>) -> Self {
        let Started { pipeline, source, options, connections } = started;
        let (to_lanes, lanes) = unbounded();
        // With an order, the waiting deliveries store themselves.
        let (to_store, stored) =
            if stores_beside_lanes(&pipeline) { unbounded() } else { (to_lanes.clone(), lanes.clone()) };
        let (to_park, parked) = unbounded();
        let queues = Arc::new(Arrivals { lanes: to_lanes, parked: to_park, to_store });
        let working = work(&pipeline, &queues, (&lanes, stored, parked));
        let beside = look_after(&pipeline);
        let receiving = receive(&pipeline, source, options, queues.clone());
        Self { pipeline, queues, lanes, receiving, working, _beside: beside, _connections: connections }
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

fn stores_beside_lanes<S: Store>(pipeline: &Pipeline<S>) -> bool {
    !pipeline.settings.inbox && pipeline.settings.order == DeliveryOrder::None
}

/// The other ends of the queues: what waits for a lane, what is to be stored, and what is parked.
type Queues<'a, A> = (&'a Receiver<Arrival<A>>, Receiver<Arrival<A>>, Receiver<Parked<A>>);

/// Spawns the tasks that process deliveries and rows.
fn work<S: Store, A: crate::Acker>(
    pipeline: &Arc<Pipeline<S>>,
    queues: &Arrivals<A>,
    (lanes, stored, parked): Queues<'_, A>,
) -> JoinSet<()> {
    let mut working = JoinSet::new();
    let settings = &pipeline.settings;
    let (to_lanes, to_park, to_store) = (queues.lanes.clone(), queues.parked.clone(), queues.to_store.clone());
    if settings.inbox || stores_beside_lanes(pipeline) {
        let to_park = to_park.clone();
        spawn(&mut working, pipeline, "storing", |at| crate::inbox::store(at, stored, to_park));
    }
    if !settings.inbox {
        for _ in 0..settings.concurrency {
            working.spawn(lane::run(pipeline.clone(), lanes.clone(), to_park.clone()));
        }
    }
    spawn(&mut working, pipeline, "parked", |at| park::run(at, parked, to_lanes, to_store));
    spawn(&mut working, pipeline, "inbox", crate::inbox::run);
    spawn(&mut working, pipeline, "calls", crate::call::run);
    working
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

/// Receives in a spawned task, because `main` runs on a thread outside the runtime's worker threads: waking that thread
/// for each delivery took about 40 microseconds of CPU time.
fn receive<S: Store, Src: Source>(
    pipeline: &Arc<Pipeline<S>>,
    mut source: Src,
    options: SubscribeOptions,
    to: Arc<Arrivals<LeasedAcker<Src::Acker>>>,
) -> JoinSet<Src> {
    let mut receiving = JoinSet::new();
    let at = pipeline.clone();
    receiving.spawn(async move {
        at.defect.task("receiving", receive::run(&at, &mut source, &options, &to)).await;
        source
    });
    receiving
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
