//! Deliveries that cannot run now. Each has left its lane, and waits here for one reason, unacked, without a
//! connection, a lock or a transaction. Then it starts over.
//!
//! | file | contents |
//! |---|---|
//! | this one | a delivery, its state from one try to the next; the task in which parked ones wait |
//! | `blocked` | the gauges of that task, and its numbers for people |
//! | `until` | each wait |

mod blocked;
mod until;

use std::sync::Arc;
use std::time::Duration;

use async_channel::Receiver;
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::{MissedTickBehavior, interval};

use crate::key_value::Lease;
use crate::run::Failure;
use crate::runtime::{KeyTicket, KeyTickets, Pipeline, Refused, Wait};
use crate::store::Identity;
use crate::{Acker, Delivery, Engine, Outcome};

use blocked::Blocked;

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
    pub(crate) unrecorded: Option<Box<Failure>>,
    /// How many tries in a row were in vain. After the first, it is processed by itself.
    pub(crate) tries: usize,
    /// The lease of its message in a key-value store.
    pub(crate) lease: Option<Lease>,
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
pub(crate) async fn run<S: Engine, A: Acker>(
    pipeline: Arc<Pipeline<S>>,
    parked: Receiver<Parked<A>>,
    pass: impl Fn(Arrival<A>) -> Option<Arrival<A>>,
) {
    let (mut waits, mut open) = (FuturesUnordered::new(), true);
    let (mut blocked, mut show) = (Blocked::new(&pipeline.metrics, &pipeline.member), interval(SHOW));
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
                    pipeline.release(closed).await;
                }
            }
            _ = show.tick(), if !blocked.is_empty() => blocked.show(),
        }
    }
}
