//! Processes the deliveries that are available at a time, one or a batch.

use std::pin::pin;

use async_channel::Sender;
use futures_util::stream::{self, StreamExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tracing::{Instrument, Span};

use crate::caught::dropped;
use crate::park::{Arrival, Carried, Parked};
use crate::runtime::{Ended, Permit, Pipeline, Running, Wait, extended};
use crate::take_over::Entry;
use crate::{Acker, Delivery, Store, telemetry};

use super::admit::Admitted;

impl<S: Store> Pipeline<S> {
    /// Processes the available deliveries, one or a batch, and leaves `batch` empty. Each is settled by its own result, parked at
    /// once if it cannot run now, or left to the broker if it is lost. `permit`: that to store a batch beside the lanes.
    pub(crate) async fn deliver_some<A: Acker>(
        &self,
        batch: &mut Vec<Arrival<A>>,
        permit: Option<OwnedSemaphorePermit>,
        parked: &Sender<Parked<A>>,
    ) {
        if batch.len() > 1 || permit.is_some() {
            // Boxed: it is large, and a worker without batches would carry it unused.
            Box::pin(self.deliver_all(std::mem::take(batch), permit, parked)).await;
        } else if let Some(arrival) = batch.pop() {
            self.deliver(None, arrival, parked).await;
        }
    }

    /// Processes a batch: together those that can be, and then the others.
    async fn deliver_all<A: Acker>(
        &self,
        mut batch: Vec<Arrival<A>>,
        permit: Option<OwnedSemaphorePermit>,
        parked: &Sender<Parked<A>>,
    ) {
        batch.retain(|arrival| arrival.acker.is_live());
        let span = |arrival: &Arrival<A>| telemetry::span(self.system, &self.consumer, &arrival.delivery);
        let spans: Vec<Span> = batch.iter().map(span).collect();
        let parts = batch.iter_mut().map(|Arrival { delivery, acker, carried }| (acker, (&**delivery, carried)));
        let (mut ackers, mut messages): (Vec<_>, Vec<_>) = parts.unzip();
        let ended = extended(&mut ackers, self.try_together(&mut messages, &spans)).await;
        let (mut done, mut alone) = (Vec::new(), Vec::new());
        for ((arrival, ended), span) in batch.into_iter().zip(ended).zip(spans) {
            match ended {
                Ended::Again(_) => alone.push(arrival),
                ended => done.push((arrival, ended, span)),
            }
        }
        // Those of a lane run one at a time on its connection, so that a batch of failures uses no more connections than any
        // other. Each lease is extended while its delivery waits, and one that is held up does not delay the others. They are
        // unordered, since batches are rejected with an order; so none of them waits for its row.
        let connection = Semaphore::new(1);
        let room = permit.is_none().then_some(&connection);
        drop(permit);
        // Settled concurrently: a broker that confirms each ack confirms all of them in the time of one.
        let finish = async |(arrival, ended, span): (Arrival<A>, Ended, Span)| {
            self.finish(arrival, ended, parked).instrument(span).await;
        };
        stream::iter(done).for_each_concurrent(None, finish).await;
        let deliver = async |arrival: Arrival<A>| self.deliver(room, arrival, parked).await;
        stream::iter(alone).for_each_concurrent(None, deliver).await;
    }

    /// Runs those that can run together, then stores those that can be stored together, and returns what became of each
    /// delivery; `Again` for those that are processed alone.
    async fn try_together(&self, batch: &mut [(&Delivery, &mut Carried)], spans: &[Span]) -> Vec<Ended> {
        let running = Running::new(Permit::Direct(self.suspect_lock.direct().await));
        if self.draining.is_cancelled() || !self.outage.is_up() {
            // Nothing begins now, and a drain releases what is parked.
            return batch.iter().map(|_| Ended::Park(Wait::Free)).collect();
        }
        let Admitted { mut works, copies, stored, _keys } = self.admit(batch, spans);
        let mut ended = running.during(&self.outage, pin!(self.run_together(&mut works, batch.len(), &running))).await;
        // The drop of a message is user code. No suspect has to wait for what is stored.
        dropped("a message", works);
        drop(running);
        let entries = stored.into_iter().map(|work| {
            let span = spans[work.at].clone();
            (work.at, Entry { span, ..Entry::due(work.identity, work.delivery) })
        });
        let (places, entries): (Vec<usize>, Vec<Entry<'_>>) = entries.unzip();
        if !entries.is_empty() {
            let stored = self.store_many(&entries).await;
            places.into_iter().zip(stored).for_each(|(place, stored)| ended[place] = stored);
        }
        for (copy, first) in &copies {
            ended[*copy] = ended[*first].of_another();
        }
        ended
    }
}
