//! Deliveries that cannot run now. Each has left its lane, and waits here for one reason, unacked, without a
//! connection, a lock or a transaction. Then it starts over.
//!
//! | file | contents |
//! |---|---|
//! | this one | a delivery, its state from one try to the next; the task in which parked ones wait, and its gauges |
//! | `until` | each wait |

mod until;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{Instant, MissedTickBehavior, interval};

use crate::run::Failure;
use crate::runtime::{KeyTicket, KeyTickets, Pipeline, Refused, Wait};
use crate::store::Identity;
use crate::telemetry::ConsumerMetrics;
use crate::{Acker, Delivery, Outcome, Store};

/// A delivery, with the state of earlier tries. In the queue of a lane, it is the first in the queues in which it has a place.
/// It is large and passes through many hands, so it is on the heap.
pub(crate) type Arrival<A> = Box<Arrived<A>>;

/// The parts of an [`Arrival`].
pub(crate) struct Arrived<A> {
    pub(crate) delivery: Delivery,
    pub(crate) acker: A,
    pub(crate) carried: Carried,
}

/// State that a delivery keeps from one try to the next, while it waits or runs. Dropping it lets other deliveries
/// continue.
#[derive(Default)]
pub(crate) struct Carried {
    /// Its place in the queue of its ordering key.
    pub(crate) order: Option<KeyTicket>,
    /// Its places in the queues of the keys of its message, in claim order: one for each handler.
    pub(crate) keys: KeyTickets,
    /// The identity of its message, if one handler takes it, and once a try has found it. Without a key if it is undeliverable.
    pub(crate) identity: Option<Identity>,
    /// The outcome for each of several handlers that take it, once it is stored for all of them.
    pub(crate) shares: Vec<(Identity, Outcome)>,
    /// A failure that could not be recorded yet. Only the write is retried, never the run.
    pub(crate) charge: Option<Box<Failure>>,
    /// How many tries in a row were in vain. After the first, it is processed by itself.
    pub(crate) tries: usize,
    /// Counts it as refused by the database.
    pub(crate) refused: Option<Refused>,
}

/// A delivery that cannot run now. It keeps its places in the queues of its keys.
pub(crate) struct Parked<A> {
    pub(crate) arrival: Arrival<A>,
    pub(crate) until: Wait,
}

/// How often the age of the oldest blocked delivery is shown.
const SHOW: Duration = Duration::from_secs(1);

/// Keeps parked deliveries. When the wait of one ends, `pass` passes it on, or returns it if a drain has closed the queue. Returns
/// once `parked` is closed and empty and no delivery waits. The drain closes it and ends the waits.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    parked: Receiver<Parked<A>>,
    pass: impl Fn(Arrival<A>) -> Option<Arrival<A>>,
) {
    let (mut waits, mut open) = (FuturesUnordered::new(), true);
    let (mut blocked, mut show) = (Blocked::new(&pipeline.metrics), interval(SHOW));
    show.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while open || !waits.is_empty() {
        tokio::select! {
            received = parked.recv(), if open => match received {
                Ok(parked) => {
                    let (pipeline, place) = (&pipeline, blocked.enter(&parked.until));
                    waits.push(async move { (pipeline.defect.task("parked", pipeline.until(parked)).await, place) });
                }
                Err(_) => open = false,
            },
            Some((ended, place)) = waits.next() => {
                blocked.leave(place);
                if let Some(closed) = ended.flatten().and_then(&pass) {
                    pipeline.release(closed.acker).await;
                }
            }
            _ = show.tick(), if !blocked.is_empty() => blocked.show(),
        }
    }
}

impl<S: Store> Pipeline<S> {
    /// Passes a delivery on that cannot run now, or releases it if a drain has closed the queue of those.
    pub(crate) async fn park<A: Acker>(&self, delivery: Parked<A>, parked: &Sender<Parked<A>>) {
        if let Err(closed) = parked.try_send(delivery) {
            self.release(closed.into_inner().arrival.acker).await;
        }
    }
}

/// Counts the parked deliveries, and those of them that another delivery of their key blocks. If that one fails again and
/// again, the oldest of them shows for how long.
struct Blocked<'a> {
    metrics: &'a ConsumerMetrics,
    since: BTreeSet<(Instant, u64)>,
    entered: u64,
}

/// When a blocked delivery was parked; `None` if nothing blocks it.
type Place = Option<(Instant, u64)>;

impl<'a> Blocked<'a> {
    fn new(metrics: &'a ConsumerMetrics) -> Self {
        Self { metrics, since: BTreeSet::new(), entered: 0 }
    }

    /// Adds a delivery.
    fn enter(&mut self, until: &Wait) -> Place {
        self.metrics.parked.increment(1);
        if !matches!(until, Wait::Order | Wait::Key) {
            return None;
        }
        self.metrics.blocked.increment(1);
        self.entered += 1;
        let place = (Instant::now(), self.entered);
        self.since.insert(place);
        Some(place)
    }

    /// Removes it.
    fn leave(&mut self, place: Place) {
        self.metrics.parked.decrement(1);
        let Some(place) = place else { return };
        self.metrics.blocked.decrement(1);
        self.since.remove(&place);
        if self.since.is_empty() {
            self.show();
        }
    }

    fn is_empty(&self) -> bool {
        self.since.is_empty()
    }

    /// Shows for how long the oldest one has been blocked.
    fn show(&self) {
        let oldest = self.since.first().map(|(since, _)| since.elapsed());
        self.metrics.blocked_oldest.set(oldest.unwrap_or_default().as_secs_f64());
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use metrics_util::debugging::{DebugValue, DebuggingRecorder};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn those_behind_another_one_are_counted_and_the_oldest_shows_for_how_long() {
        let recorder = DebuggingRecorder::new();
        let metrics = metrics::with_local_recorder(&recorder, || ConsumerMetrics::new("billing"));
        let shown = || {
            let gauges = recorder.snapshotter().snapshot().into_vec().into_iter().filter_map(|(key, _, _, value)| {
                let DebugValue::Gauge(value) = value else { return None };
                Some((key.key().name().to_owned(), value.into_inner()))
            });
            let gauges: BTreeMap<_, _> = gauges.collect();
            ["idem_parked", "idem_blocked", "idem_blocked_oldest_seconds"].map(|name| gauges[name])
        };
        let mut blocked = Blocked::new(&metrics);
        let refused = blocked.enter(&Wait::After(Duration::ZERO));
        assert!(refused.is_none() && blocked.is_empty());
        let first = blocked.enter(&Wait::Order);
        tokio::time::advance(Duration::from_secs(5)).await;
        let second = blocked.enter(&Wait::Key);
        tokio::time::advance(Duration::from_secs(1)).await;
        blocked.show();
        assert_eq!(shown(), [3.0, 2.0, 6.0]);
        blocked.leave(first);
        blocked.show();
        // Each look at the recorder has set its gauges to zero.
        assert_eq!(shown(), [-1.0, -1.0, 1.0]);
        blocked.leave(second);
        blocked.leave(refused);
        assert_eq!(shown(), [-2.0, -1.0, 0.0], "nothing is shown of what has left");
    }
}
