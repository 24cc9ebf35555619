//! A delivery, the state that it keeps from one try to the next, and the queues in which it waits.

use async_channel::{Sender, TrySendError};

use crate::run::Failure;
use crate::runtime::{KeyTicket, KeyTickets, Refused, Wait};
use crate::store::Identity;
use crate::{Delivery, Key, Outcome};

use super::Parked;

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
    /// The key of its message, if the last try has found it and one handler takes it: for the observer.
    pub(crate) key: Option<Key>,
    /// The outcome for each of several handlers that take it, once it is stored for all of them.
    pub(crate) shares: Vec<(Identity, Outcome)>,
    /// A failure that could not be recorded yet. Only the write is retried, never the run.
    pub(crate) charge: Option<Box<Failure>>,
    /// How many tries in a row were in vain. After the first, it is processed by itself.
    pub(crate) tries: usize,
    /// Counts it as refused by the database.
    pub(crate) refused: Option<Refused>,
}

/// The queues for deliveries.
pub(crate) struct Arrivals<A> {
    /// Deliveries that can run.
    pub(crate) lanes: Sender<Arrival<A>>,
    /// Deliveries that cannot run now: those that were received wait for their turn.
    pub(crate) parked: Sender<Parked<A>>,
    /// Redelivered messages, which must not wait for a free lane: a broker with a delivery limit would drop such a
    /// message if this process ended often enough before that.
    pub(crate) to_store: Sender<Arrival<A>>,
}

impl<A> Arrivals<A> {
    /// Closes all queues. Items already in them are still taken.
    pub(crate) fn close(&self) {
        self.lanes.close();
        self.parked.close();
        self.to_store.close();
    }

    /// Passes on a delivery that was received.
    pub(crate) fn push(&self, arrival: Arrival<A>) {
        let must_wait = arrival.carried.order.as_ref().is_some_and(|place| !place.is_first());
        // What a drain has closed takes no more: the close of the source gives it back.
        if must_wait {
            // Also one that was redelivered: sources refuse queues with a delivery limit, so nothing drops it while it waits.
            drop(self.parked.try_send(Parked { arrival, until: Wait::Order }));
        } else {
            drop(self.pass(arrival));
        }
    }

    /// Passes on a delivery that can run. Returns it if a drain has closed the queue.
    pub(super) fn pass(&self, arrival: Arrival<A>) -> Option<Arrival<A>> {
        let stores_first = arrival.delivery.ordering_key.is_none() && arrival.delivery.redelivered();
        let queue = if stores_first { &self.to_store } else { &self.lanes };
        queue.try_send(arrival).err().map(TrySendError::into_inner)
    }
}
