//! A batch of deliveries, taken all the way.

use std::collections::HashMap;

use futures_util::stream::{self, StreamExt};
use tracing::Instrument;

use crate::pipeline::Pipeline;
use crate::store::HandlerId;
use crate::worker::{Hold, extended_all};
use crate::{Acker, Delivery, Key, Outcome, Store, telemetry};

use super::item::{Item, Verdict};
use super::together::Round;

/// How many of a batch are taken alone at once: those that failed, or that nobody but themselves may be charged for.
const ALONE: usize = 4;

impl<S: Store> Pipeline<S> {
    /// Takes what was there all the way, one delivery or a batch.
    pub(crate) async fn deliver_some<A: Acker>(&self, mut batch: Vec<(Delivery, A)>) {
        match batch.len() {
            0 | 1 => {
                if let Some((delivery, acker)) = batch.pop() {
                    self.deliver(delivery, acker).await;
                }
            }
            // Boxed: it is large, and a worker without batches would carry it for nothing.
            _ => Box::pin(self.deliver_all(batch)).await,
        }
    }

    /// Takes a batch all the way. Each delivery ends settled by its own verdict, or left to the broker where it is no longer
    /// ours.
    async fn deliver_all<A: Acker>(&self, mut batch: Vec<(Delivery, A)>) {
        batch.retain(|(_, acker)| acker.is_live());
        let (deliveries, mut ackers): (Vec<Delivery>, Vec<A>) = batch.into_iter().unzip();
        let verdicts = extended_all(ackers.iter_mut().collect(), self.verdicts(&deliveries)).await;
        let settled = deliveries.into_iter().zip(ackers).zip(verdicts);
        let (mut done, mut alone) = (Vec::new(), Vec::new());
        for ((delivery, acker), verdict) in settled {
            match verdict {
                Verdict::Done(outcome) => done.push((delivery, acker, outcome)),
                Verdict::Alone => alone.push((delivery, acker)),
                Verdict::Broke => alone.push((delivery.with_redelivered(true), acker)),
                Verdict::Stopped => self.release(acker).await,
            }
        }
        // At once: a broker that confirms each ack answers all of them in the time of one.
        stream::iter(done)
            .for_each_concurrent(None, |(delivery, acker, outcome)| async move {
                let span = telemetry::span(self.system, &self.consumer, &delivery);
                async {
                    self.settle(acker).await;
                    self.emit(self.meters(&delivery), &delivery, &outcome);
                }
                .instrument(span)
                .await;
            })
            .await;
        stream::iter(alone).for_each_concurrent(ALONE, |(delivery, acker)| self.deliver(delivery, acker)).await;
    }

    /// A verdict for each delivery, in their order.
    async fn verdicts(&self, deliveries: &[Delivery]) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Alone; deliveries.len()];
        let items = self.items(deliveries);
        let _turn = self.pace.turn().await;
        let _room = self.gate.shared().await;
        let mut groups = vec![(items, false)];
        let mut holds = 0;
        while let Some((mut items, failed)) = groups.pop() {
            // Alone it goes the way of a single message, which is where failures are charged.
            if items.len() < 2 {
                continue;
            }
            if self.draining.is_cancelled() {
                items.iter().for_each(|item| give(&mut verdicts, item, &Verdict::Stopped));
                continue;
            }
            match self.together(&mut items, deliveries).await {
                Round::Done(found) => {
                    self.pace.grow();
                    for (item, verdict) in items.iter().zip(found) {
                        give(&mut verdicts, item, &verdict);
                    }
                }
                Round::Without(out) => {
                    let mut place = 0;
                    items.retain(|_| (!out.contains(&place), place += 1).0);
                    // After a second failure the rest is halved, so that many failures do not cost a round each.
                    if failed { halve(items, true, &mut groups) } else { groups.push((items, true)) }
                }
                Round::Split => halve(items, failed, &mut groups),
                Round::Deadlock => {
                    self.pace.shrink();
                    halve(items, failed, &mut groups);
                }
                Round::Outage(fault) => {
                    self.hold_for(fault);
                    self.hold(Hold::Outage, holds).await;
                    holds += 1;
                    groups.push((items, failed));
                }
                Round::Broke => items.iter().for_each(|item| give(&mut verdicts, item, &Verdict::Broke)),
                Round::CommittedEarly(new) => {
                    for place in new {
                        self.committed_early(&deliveries[items[place].at], &items[place].identity, 1).await;
                        let dead = Outcome::Dead { reason: crate::Reason::Committed };
                        give(&mut verdicts, &items[place], &Verdict::Done(dead));
                    }
                }
                Round::Stopped => items.iter().for_each(|item| give(&mut verdicts, item, &Verdict::Stopped)),
            }
        }
        verdicts
    }

    /// The deliveries that can run together, sorted as claims are made. What cannot is taken alone: what is unfit or was
    /// redelivered, what is in flight elsewhere in this process, and another message under a key of the batch.
    fn items(&self, deliveries: &[Delivery]) -> Vec<Item<'_, S>> {
        let mut items: Vec<Item<'_, S>> = Vec::with_capacity(deliveries.len());
        let mut seen: HashMap<(HandlerId, Key), usize> = HashMap::with_capacity(deliveries.len());
        for (at, delivery) in deliveries.iter().enumerate() {
            if delivery.redelivered() {
                continue;
            }
            let Ok(work) = self.receive(delivery) else { continue };
            let id = (work.identity.handler, work.identity.key);
            if let Some(first) = seen.get(&id) {
                let first = &mut items[*first];
                if first.identity.fingerprint == work.identity.fingerprint {
                    first.copies.push(at);
                }
                continue;
            }
            let Some(flight) = self.flights.try_enter(id.0, &id.1) else { continue };
            seen.insert(id, items.len());
            let (route, identity, job) = (work.route, work.identity, Some(work.job));
            items.push(Item { at, route, identity, job, copies: Vec::new(), _flight: flight });
        }
        items.sort_unstable_by(|a, b| order(a).cmp(&order(b)));
        items
    }
}

/// The order in which claims are made: two transactions that keep it never wait for each other in a circle.
fn order<'a, S>(item: &'a Item<'_, S>) -> (i32, &'a [u8]) {
    (item.identity.handler.0, item.identity.key.as_bytes())
}

fn halve<'a, S>(mut items: Vec<Item<'a, S>>, failed: bool, groups: &mut Vec<(Vec<Item<'a, S>>, bool)>) {
    let half = items.split_off(items.len() / 2);
    groups.push((half, failed));
    groups.push((items, failed));
}

/// Gives an item and its copies their verdict. A copy of what was processed is a duplicate.
fn give<S>(verdicts: &mut [Verdict], item: &Item<'_, S>, verdict: &Verdict) {
    verdicts[item.at] = verdict.clone();
    let copies = match verdict {
        Verdict::Done(Outcome::Processed) => &Verdict::Done(Outcome::Duplicate),
        // It is a dead letter once; what comes again of it is a sighting.
        Verdict::Done(Outcome::Dead { .. }) => &Verdict::Alone,
        other => other,
    };
    for copy in &item.copies {
        verdicts[*copy] = copies.clone();
    }
}
