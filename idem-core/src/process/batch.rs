//! Processes deliveries in batches.

use std::pin::pin;

use async_channel::Sender;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tokio::sync::Semaphore;
use tracing::Instrument;

use crate::park::{Arrival, Carried, Parked};
use crate::runtime::{Ended, Permit, Pipeline, Running, extended};
use crate::{Acker, Delivery, Key, Outcome, Store, telemetry};

impl<S: Store> Pipeline<S> {
    /// Processes the available deliveries, one or a batch, and leaves `batch` empty. A delivery that cannot run now is parked
    /// at once.
    pub(crate) async fn deliver_some<A: Acker>(&self, batch: &mut Vec<Arrival<A>>, parked: &Sender<Parked<A>>) {
        if batch.len() > 1 {
            // Boxed: it is large, and a worker without batches would carry it unused.
            Box::pin(self.deliver_all(std::mem::take(batch), parked)).await;
        } else if let Some(arrival) = batch.pop()
            && let Some(delivery) = self.deliver(None, arrival).await
        {
            self.park(delivery, parked).await;
        }
    }

    /// Processes a batch. Each delivery is settled by its own result, or left to the broker if it is lost. Those that cannot run
    /// now are parked.
    async fn deliver_all<A: Acker>(&self, mut batch: Vec<Arrival<A>>, parked: &Sender<Parked<A>>) {
        batch.retain(|arrival| arrival.acker.is_live());
        let parts = batch.iter_mut().map(|Arrival { delivery, acker, carried }| (acker, (&**delivery, carried)));
        let (mut ackers, mut messages): (Vec<_>, Vec<_>) = parts.unzip();
        let ended = extended(&mut ackers, self.run_batch(&mut messages)).await;
        let (mut done, mut alone, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
        for (mut arrival, ended) in batch.into_iter().zip(ended) {
            match ended {
                Ended::Done(outcome) => {
                    self.brake.fit(&outcome);
                    done.push((arrival.delivery, arrival.acker, arrival.carried.key, outcome));
                }
                Ended::Stopped => stopped.push(arrival.acker),
                ended => {
                    arrival.delivery.redelivered |= matches!(ended, Ended::Broke(_));
                    alone.push(arrival);
                }
            }
        }
        // Settled concurrently: a broker that confirms each ack confirms all of them in the time of one.
        let settle = async |(delivery, acker, key, outcome): (Box<Delivery>, A, Option<Key>, Outcome)| {
            let span = telemetry::span(self.system, &self.consumer, &delivery);
            async {
                self.settle(acker).await;
                self.emit(self.routes.find(&delivery).ok(), key.as_ref(), &delivery, &outcome);
            }
            .instrument(span)
            .await;
        };
        stream::iter(done).for_each_concurrent(None, settle).await;
        join_all(stopped.into_iter().map(|acker| self.release(acker))).await;
        // One at a time on the lane's connection, so that a batch of failures uses no more connections than any other.
        // Each lease is extended while its delivery waits, and one that is held up does not delay the others. They are
        // unordered, since batches are rejected with an order; so none of them waits for its row.
        let connection = Semaphore::new(1);
        self.deliver_each(Some(&connection), alone, parked).await;
    }

    /// Processes each of the deliveries by itself, all of them concurrently, in `room` as [`deliver`](Self::deliver) does. Those
    /// that cannot run now are parked.
    pub(crate) async fn deliver_each<A: Acker>(
        &self,
        room: Option<&Semaphore>,
        alone: Vec<Arrival<A>>,
        parked: &Sender<Parked<A>>,
    ) {
        let deliver = async |arrival: Arrival<A>| {
            if let Some(delivery) = self.deliver(room, arrival).await {
                self.park(delivery, parked).await;
            }
        };
        stream::iter(alone).for_each_concurrent(None, deliver).await;
    }

    /// Runs the deliveries that can run together, and returns what became of each; `Again` for those that run alone.
    async fn run_batch(&self, batch: &mut [(&Delivery, &mut Carried)]) -> Vec<Ended> {
        let running = Running::new(Permit::Direct(self.suspect_lock.direct().await));
        let mut admitted = self.admit(batch);
        for work in &admitted.works {
            batch[work.at].1.key = Some(work.identity.key.clone());
        }
        for (copy, first) in &admitted.copies {
            batch[*copy].1.key = batch[*first].1.key.clone();
        }
        let run = pin!(self.run_together(&mut admitted.works, batch.len(), &running));
        let mut ended = running.during(&self.outage, run).await;
        for (copy, first) in &admitted.copies {
            ended[*copy] = ended[*first].of_another();
        }
        ended
    }
}
