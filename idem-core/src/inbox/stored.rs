//! Stores one batch of deliveries.

use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::OwnedSemaphorePermit;
use tracing::Span;

use crate::runtime::{HoldReason, KeyTicket, Pipeline, Progress, extended_all};
use crate::take_over::{Classified, Known, Taken};
use crate::{Acker, Outcome, Store, telemetry};

use super::storing::{Arrived, Counted};

/// A delivery that can be stored.
struct Item<A> {
    message: Known,
    span: Span,
    acker: A,
    counted: Counted,
    /// Keeps out other deliveries of the key in this process, if there are lanes that run them.
    _key_lock: Option<KeyTicket>,
}

impl<A> Item<A> {
    /// Takes the delivery out of the batch, to be processed separately.
    fn alone(self) -> Arrived<A> {
        Arrived::again(self.message.delivery, self.acker, self.counted)
    }
}

impl<S: Store> Pipeline<S> {
    /// Stores a batch. Returns those that have to be processed separately; all others are settled, or left to the
    /// broker if they are lost. `room` is released before the last of them are settled.
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
        batch.sort_by(|one, other| one.message.identity.place().cmp(&other.message.identity.place()));
        let (mut room, mut parts) = (Some(room), vec![batch]);
        while let Some(part) = parts.pop() {
            let kept = self.store_part(part, &mut parts, &mut alone).await;
            if parts.is_empty() {
                room = None;
            }
            join_all(kept.into_iter().map(|(item, kept)| self.finish(item, kept))).await;
        }
        drop(room);
        alone
    }

    /// Checks limits, decodes, and determines the key. A delivery that is unfit is returned: its separate processing
    /// finds the same, and makes it a dead letter. A delivery whose key is in flight here also waits separately, and
    /// delays no other.
    fn identify<A>(&self, arrived: Arrived<A>) -> Result<Item<A>, Arrived<A>> {
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
        Ok(Item { message: Known { delivery, identity }, span, acker, counted, _key_lock: key_lock })
    }

    /// Stores sorted messages in one transaction, and retries until the database has responded. If a claim is held up,
    /// or the database refuses a message, the part is halved until the message at fault is alone.
    async fn store_part<A: Acker>(
        &self,
        mut part: Vec<Item<A>>,
        parts: &mut Vec<Vec<Item<A>>>,
        alone: &mut Vec<Arrived<A>>,
    ) -> Vec<(Item<A>, Taken)> {
        for holds in 0.. {
            part.retain(|item| item.acker.is_live());
            if part.is_empty() {
                break;
            }
            if self.draining.is_cancelled() {
                join_all(part.into_iter().map(|item| self.release(item.acker))).await;
                break;
            }
            let (entries, ackers): (Vec<_>, Vec<_>) =
                part.iter_mut().map(|item| (item.message.entry(), &mut item.acker)).unzip();
            let taken = extended_all(ackers, self.store_many(&entries)).await;
            drop(entries);
            match taken {
                Ok(kept) => {
                    let is_gone = |(_, kept): &(Item<A>, Taken)| kept.classified == Classified::Gone;
                    let (gone, kept): (Vec<_>, Vec<_>) = part.into_iter().zip(kept).partition(is_gone);
                    alone.extend(gone.into_iter().map(|(item, _)| item.alone()));
                    return kept;
                }
                // One of the messages is held up, refused or too slow.
                Err(step) if splits(&step, holds) => {
                    if part.len() == 1 {
                        alone.extend(part.into_iter().map(Item::alone));
                    } else {
                        parts.push(part.split_off(part.len() / 2));
                        parts.push(part);
                    }
                    break;
                }
                Err(_) => {}
            }
            part.iter().for_each(|item| self.routes.meters(item.message.identity.handler).held.increment(1));
            let ackers = part.iter_mut().map(|item| &mut item.acker).collect();
            extended_all(ackers, self.pause(holds)).await;
        }
        Vec::new()
    }

    /// Settles a delivery by its classification, after the commit.
    async fn finish<A: Acker>(&self, item: Item<A>, kept: Taken) {
        let Item { message: Known { delivery, identity }, span, mut acker, counted, .. } = item;
        let meters = self.routes.meters(identity.handler);
        let outcome = if kept.classified == Classified::New {
            acker.stored();
            Some(Outcome::Scheduled { attempt: 0, due: Duration::ZERO })
        } else {
            kept.classified.outcome(meters)
        };
        // A message whose claim is gone was removed before.
        let Some(outcome) = outcome else { return };
        self.brake.fit(&outcome);
        self.settle(acker).await;
        drop(counted);
        span.in_scope(|| {
            kept.tell(0);
            self.emit(meters, &delivery, &outcome);
        });
    }
}

/// Returns whether a single message may be the cause.
fn splits(step: &Progress, holds: usize) -> bool {
    match step {
        Progress::Refused(_) | Progress::Hold(HoldReason::Busy) => true,
        Progress::Hold(HoldReason::Lost) => holds > 0,
        _ => false,
    }
}
