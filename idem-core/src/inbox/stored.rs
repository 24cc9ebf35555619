//! Stores one batch of deliveries.

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use crate::runtime::{Ended, KeyTicket, Pipeline, extended_all};
use crate::store::Identity;
use crate::take_over::Entry;
use crate::{Acker, Delivery, Outcome, Store, telemetry};

use super::storing::{Arrived, Counted};

/// A delivery that can be stored.
struct Item<A> {
    delivery: Box<Delivery>,
    identity: Identity,
    span: Span,
    acker: A,
    counted: Counted,
    /// Keeps out other deliveries of the key in this process, if there are lanes that run them.
    _key_lock: Option<KeyTicket>,
}

impl<A> Item<A> {
    fn entry(&mut self) -> (Entry<'_>, &mut A) {
        let entry = Entry { span: self.span.clone(), ..Entry::due(self.identity.clone(), &self.delivery) };
        (entry, &mut self.acker)
    }

    /// Takes the delivery out of the batch, to be processed separately.
    fn alone(self) -> Arrived<A> {
        Arrived::again(self.delivery, self.acker, self.counted)
    }
}

impl<S: Store> Pipeline<S> {
    /// Stores a batch, and waits for the database while it is away. Returns those that have to be processed separately; all
    /// others are settled, or left to the broker if they are lost. `room` is released before the last of them are settled.
    pub(super) async fn store_batch<A: Acker>(
        &self,
        mut arrived: Vec<Arrived<A>>,
        room: OwnedSemaphorePermit,
    ) -> Vec<Arrived<A>> {
        let mut alone = Vec::new();
        let mut batch = Vec::with_capacity(arrived.len());
        // A suspect that has the process to itself is not blamed for what a codec or a key does.
        let ackers = arrived.iter_mut().map(|arrived| &mut arrived.acker).collect();
        let beside = extended_all(ackers, self.suspect_lock.direct()).await;
        for arrived in arrived {
            self.identify(arrived).map_or_else(|unfit| alone.push(unfit), |item| batch.push(item));
        }
        drop(beside);
        // The sort is stable, so that of several copies the one that arrived first is stored.
        batch.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        let mut room = Some(room);
        for holds in 0.. {
            batch.retain(|item| item.acker.is_live());
            if batch.is_empty() {
                break;
            }
            if self.draining.is_cancelled() {
                join_all(batch.into_iter().map(|item| self.release(item.acker))).await;
                break;
            }
            let (entries, ackers): (Vec<_>, Vec<_>) = batch.iter_mut().map(Item::entry).unzip();
            let ended = extended_all(ackers, self.store_many(&entries, holds)).await;
            drop(entries);
            let mut stored = Vec::with_capacity(batch.len());
            let mut held = Vec::new();
            for (item, ended) in batch.into_iter().zip(ended) {
                match ended {
                    Ended::Done(outcome) => stored.push((item, outcome)),
                    Ended::Park(turn) if turn.is_common(holds) => held.push(item),
                    // It is held up, refused or too slow.
                    _ => alone.push(item.alone()),
                }
            }
            batch = held;
            if batch.is_empty() {
                room = None;
            }
            join_all(stored.into_iter().map(|(item, outcome)| self.finish(item, outcome))).await;
            if batch.is_empty() {
                break;
            }
            batch.iter().for_each(|item| self.routes.meters(item.identity.handler).held.increment(1));
            let ackers = batch.iter_mut().map(|item| &mut item.acker).collect();
            extended_all(ackers, self.pause(holds)).await;
        }
        drop(room);
        alone
    }

    /// Checks limits, decodes, and determines the key. A delivery that is unfit is returned: its separate processing
    /// finds the same, and makes it a dead letter. A delivery whose key is in flight here also waits separately, and
    /// delays no other.
    fn identify<A>(&self, arrived: Arrived<A>) -> Result<Item<A>, Arrived<A>> {
        if self.routes.are_several(&arrived.delivery) {
            return Err(arrived);
        }
        let span = telemetry::span(self.system, &self.consumer, &arrived.delivery);
        let identity = span.in_scope(|| self.decode(&arrived.delivery).map(|work| work.identity));
        let Ok(identity) = identity else { return Err(arrived) };
        let key_lock = match self.settings.inbox {
            true => None,
            false => match self.key_locks.first_place((identity.handler, &identity.key)) {
                None => return Err(arrived),
                key_lock => key_lock,
            },
        };
        let Arrived { delivery, acker, counted, .. } = arrived;
        Ok(Item { delivery, identity, span, acker, counted, _key_lock: key_lock })
    }

    /// Settles a delivery that the database has taken over.
    async fn finish<A: Acker>(&self, item: Item<A>, outcome: Outcome) {
        let Item { delivery, identity, span, mut acker, counted, .. } = item;
        if outcome.is_stored() {
            acker.stored();
        }
        self.brake.fit(&outcome);
        self.settle(acker).await;
        drop(counted);
        let route = self.routes.get(identity.handler);
        span.in_scope(|| self.emit(route, identity.known_key(), &delivery, &outcome));
    }
}
