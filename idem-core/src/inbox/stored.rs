//! Stores one batch of deliveries.

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use crate::park::{Arrival, Carried};
use crate::runtime::{Ended, KeyTicket, Pipeline, extended};
use crate::store::Identity;
use crate::take_over::Entry;
use crate::{Acker, Delivery, Outcome, Store, telemetry};

/// A delivery that can be stored.
struct Item<A> {
    delivery: Box<Delivery>,
    identity: Identity,
    span: Span,
    acker: A,
    /// Keeps out other deliveries of the key in this process, if there are lanes that run them.
    _key_lock: Option<KeyTicket>,
}

impl<A> Item<A> {
    fn entry(&mut self) -> (Entry<'_>, &mut A) {
        let entry = Entry { span: self.span.clone(), ..Entry::due(self.identity.clone(), &self.delivery) };
        (entry, &mut self.acker)
    }

    /// Takes the delivery out of the batch, to be processed separately.
    fn alone(self) -> Arrival<A> {
        Arrival { delivery: self.delivery, acker: self.acker, carried: Carried::default() }
    }
}

impl<S: Store> Pipeline<S> {
    /// Stores a batch. Returns those that have to be processed separately; all others are settled, or left to the broker
    /// if they are lost. `room` is released before they are settled.
    pub(super) async fn store_batch<A: Acker>(
        &self,
        mut arrived: Vec<Arrival<A>>,
        room: OwnedSemaphorePermit,
    ) -> Vec<Arrival<A>> {
        let (mut alone, mut batch) = (Vec::new(), Vec::with_capacity(arrived.len()));
        // A suspect that has the process to itself is not blamed for what a codec or a key does.
        let mut ackers: Vec<&mut A> = arrived.iter_mut().map(|arrival| &mut arrival.acker).collect();
        let direct = self.draining.run_until_cancelled(self.suspect_lock.direct());
        // A drain waits for no suspect: each delivery is released.
        let Some(beside) = extended(&mut ackers, direct).await else { return arrived };
        for arrival in arrived {
            match self.identify(&arrival.delivery) {
                Some((identity, span, _key_lock)) => {
                    let Arrival { delivery, acker, .. } = arrival;
                    batch.push(Item { delivery, identity, span, acker, _key_lock });
                }
                None => alone.push(arrival),
            }
        }
        drop(beside);
        batch.retain(|item| item.acker.is_live());
        // The sort is stable, so that of several copies the one that arrived first is stored.
        batch.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        let mut ended = Vec::new();
        if !batch.is_empty() && !self.draining.is_cancelled() && self.outage.is_up() {
            let (entries, mut ackers): (Vec<_>, Vec<_>) = batch.iter_mut().map(Item::entry).unzip();
            ended = extended(&mut ackers, self.store_many(&entries)).await;
        }
        drop(room);
        let (mut stored, mut ended) = (Vec::with_capacity(batch.len()), ended.into_iter());
        for item in batch {
            match ended.next() {
                Some(Ended::Done(outcome)) => stored.push(self.finish(item, outcome)),
                // It is held up, refused or too slow, the database is away, or the worker drains.
                _ => alone.push(item.alone()),
            }
        }
        join_all(stored).await;
        alone
    }

    /// Checks limits, decodes, and determines the key. `None` for a delivery that is unfit: its separate processing finds the
    /// same, and makes it a dead letter; and for one whose key is in flight here: it waits separately, and delays no other.
    fn identify(&self, delivery: &Delivery) -> Option<(Identity, Span, Option<KeyTicket>)> {
        if self.routes.are_several(delivery) {
            return None;
        }
        let span = telemetry::span(self.system, &self.consumer, delivery);
        let identity = span.in_scope(|| self.decode(delivery).map(|work| work.identity)).ok()?;
        let key_lock = match self.settings.inbox {
            true => None,
            false => Some(self.key_locks.first_place((identity.handler, &identity.key))?),
        };
        Some((identity, span, key_lock))
    }

    /// Settles a delivery that the database has taken over.
    async fn finish<A: Acker>(&self, item: Item<A>, outcome: Outcome) {
        let Item { delivery, identity, span, mut acker, .. } = item;
        if outcome.is_stored() {
            acker.stored();
        }
        self.brake.fit(&outcome);
        self.settle(acker).await;
        let route = self.routes.get(identity.handler);
        span.in_scope(|| self.emit(route, identity.known_key(), &delivery, &outcome));
    }
}
