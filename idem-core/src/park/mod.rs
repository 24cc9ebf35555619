//! Deliveries that cannot run now. Each has left its lane, and waits here for one reason, unacked and with its lease
//! extended, without a connection, a lock or a transaction. Then it starts over.
//!
//! | file | contents |
//! |---|---|
//! | this one | the task in which all parked deliveries wait |
//! | `arrival` | a delivery that can run, the state that it keeps, and the queues |
//! | `until` | each wait |
//! | `in_vain` | how long a delivery waits whose try was in vain |
//! | `blocked` | the gauges |

mod arrival;
mod blocked;
mod in_vain;
mod until;

use std::sync::Arc;
use std::time::Duration;

use async_channel::{Receiver, Sender};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{MissedTickBehavior, interval};

use crate::runtime::{Pipeline, Wait};
use crate::{Acker, Store};

use blocked::Blocked;

pub(crate) use arrival::{Arrival, Arrivals, Arrived, Carried};

/// A delivery that cannot run now. It keeps its places in the queues of its keys.
pub(crate) struct Parked<A> {
    pub(crate) arrival: Arrival<A>,
    pub(crate) until: Wait,
}

/// How often the age of the oldest blocked delivery is shown.
const SHOW: Duration = Duration::from_secs(1);

/// Keeps parked deliveries, and passes each on when its wait ends. Returns once `parked` is closed and empty and no delivery
/// waits. The worker's drain closes it and ends the waits.
pub(crate) async fn run<S: Store, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    parked: Receiver<Parked<A>>,
    queues: Arc<Arrivals<A>>,
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
                if let Some(closed) = ended.flatten().and_then(|arrival| queues.pass(arrival)) {
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
            self.give_up(closed.into_inner().arrival.acker).await;
        }
    }

    /// Ends a wait without success: the worker drains, or the delivery is lost.
    async fn give_up<A: Acker>(&self, acker: A) {
        if acker.is_live() {
            return self.release(acker).await;
        }
        tracing::debug!("the delivery was lost; the broker redelivers it");
    }
}
