//! Deliveries and inbox rows in batches, taken all the way.

use futures_util::stream::{self, StreamExt};
use tracing::Instrument;

use crate::pipeline::{Pipeline, Step};
use crate::store::Row;
use crate::worker::{Arrival, Hold, Waiting, extended_all};
use crate::{Acker, Delivery, Outcome, Store, telemetry};

use super::item::{Item, Verdict, give};
use super::together::{Opening, Round};

/// How many of a batch are taken alone at once: those that failed, or that nobody but themselves may be charged for.
const ALONE: usize = 4;

impl<S: Store> Pipeline<S> {
    /// Takes what was there all the way, one delivery or a batch, and leaves nothing of it in `batch`. What is answered has
    /// to wait for its row, as [`deliver`](Self::deliver) says.
    pub(crate) async fn deliver_some<A: Acker>(&self, batch: &mut Vec<Arrival<A>>) -> Option<Waiting<A>> {
        match batch.len() {
            0 | 1 => {
                let (delivery, acker, place) = batch.pop()?;
                self.deliver(delivery, acker, place).await
            }
            // Boxed: it is large, and a worker without batches would carry it for nothing.
            _ => {
                Box::pin(self.deliver_all(std::mem::take(batch))).await;
                None
            }
        }
    }

    /// Takes a batch all the way. Each delivery ends settled by its own verdict, or left to the broker where it is no longer
    /// ours.
    async fn deliver_all<A: Acker>(&self, mut batch: Vec<Arrival<A>>) {
        batch.retain(|(_, acker, _)| acker.is_live());
        let (deliveries, mut ackers): (Vec<Delivery>, Vec<A>) =
            batch.into_iter().map(|(delivery, acker, _)| (delivery, acker)).unzip();
        let verdicts = extended_all(ackers.iter_mut().collect(), self.together(&deliveries)).await;
        let (mut done, mut alone) = (Vec::new(), Vec::new());
        for ((delivery, acker), verdict) in deliveries.into_iter().zip(ackers).zip(verdicts) {
            match verdict {
                Verdict::Done(outcome) => {
                    self.brake.fit(&outcome);
                    done.push((delivery, acker, outcome));
                }
                Verdict::Alone | Verdict::Lost => alone.push((delivery, acker)),
                Verdict::Broke => alone.push((delivery.with_redelivered(true), acker)),
                Verdict::Stopped => self.release(acker).await,
            }
        }
        // At once: a broker that confirms each ack answers all of them in the time of one.
        let settle = async |(delivery, acker, outcome): (Delivery, A, Outcome)| {
            let span = telemetry::span(self.system, &self.consumer, &delivery);
            async {
                self.settle(acker).await;
                self.emit(self.meters(&delivery), &delivery, &outcome);
            }
            .instrument(span)
            .await;
        };
        stream::iter(done).for_each_concurrent(None, settle).await;
        // In no order, since batches are refused with one: so none of them waits for its row.
        let deliver = async |(delivery, acker)| drop(self.deliver(delivery, acker, None).await);
        stream::iter(alone).for_each_concurrent(ALONE, deliver).await;
    }

    async fn together(&self, deliveries: &[Delivery]) -> Vec<Verdict> {
        let items = self.items(deliveries);
        let _room = self.gate.shared().await;
        let facts: Vec<&Delivery> = deliveries.iter().collect();
        self.verdicts(items, &facts, Opening::Claims).await
    }

    /// Runs rows that were taken from the inbox, none of them a suspect, in one transaction. Whatever happens, each is
    /// processed, noted, or left to the end of its lease.
    pub(crate) async fn run_rows(&self, rows: &[Row]) {
        let verdicts = match rows {
            [_] => vec![Verdict::Alone],
            _ => {
                let facts: Vec<&Delivery> = rows.iter().map(|row| &row.delivery).collect();
                Box::pin(self.verdicts(self.rows(rows), &facts, Opening::Rows(rows))).await
            }
        };
        for (row, verdict) in rows.iter().zip(verdicts) {
            self.conclude(row, verdict).await;
        }
    }

    /// A verdict for each of these, in their order; those that are no items are to be taken alone.
    async fn verdicts(&self, items: Vec<Item<'_, S>>, facts: &[&Delivery], opening: Opening<'_>) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Alone; facts.len()];
        let _turn = self.pace.turn().await;
        let mut groups = vec![(items, false)];
        let mut holds = 0;
        while let Some((mut items, failed)) = groups.pop() {
            // Alone it goes the way of a single message, which is where failures are charged.
            if items.len() < 2 {
                continue;
            }
            if self.draining.is_cancelled() {
                give(&mut verdicts, &items, &Verdict::Stopped);
                continue;
            }
            match self.round(&mut items, facts, opening).await {
                Round::Done(found) => {
                    self.pace.grow();
                    for (item, verdict) in items.chunks(1).zip(found) {
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
                Round::Broke => give(&mut verdicts, &items, &Verdict::Broke),
                Round::CommittedEarly(new) => {
                    for place in new {
                        let item = &items[place];
                        let attempts = item.attempts + 1;
                        let verdict = match self.committed_early(facts[item.at], &item.identity, attempts).await {
                            Step::Done(outcome) => Verdict::Done(outcome),
                            _ => Verdict::Stopped,
                        };
                        give(&mut verdicts, &items[place..=place], &verdict);
                    }
                }
                Round::Stopped => give(&mut verdicts, &items, &Verdict::Stopped),
            }
        }
        verdicts
    }
}

fn halve<'a, S: Store>(mut items: Vec<Item<'a, S>>, failed: bool, groups: &mut Vec<(Vec<Item<'a, S>>, bool)>) {
    let half = items.split_off(items.len() / 2);
    groups.push((half, failed));
    groups.push((items, failed));
}
