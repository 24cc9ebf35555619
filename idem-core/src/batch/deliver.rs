//! Processes deliveries and inbox rows in batches.

use std::pin::pin;

use async_channel::Sender;
use futures_util::future::join_all;
use futures_util::stream::{self, StreamExt};
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tracing::Instrument;

use crate::park::{Arrival, Carried, Parked, UNANSWERED};
use crate::runtime::{Permit, Pipeline, Running, SuspectLock, extended_all};
use crate::store::{Row, StoreError};
use crate::{Acker, Delivery, Key, Outcome, Store, telemetry};

use super::item::{Item, Verdict, set_verdict};
use super::round::{Opening, TransactionResult};

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

    /// Processes a batch. Each delivery is settled by its verdict, or left to the broker if it is lost. Those that
    /// cannot run now are parked.
    async fn deliver_all<A: Acker>(&self, mut batch: Vec<Arrival<A>>, parked: &Sender<Parked<A>>) {
        batch.retain(|arrival| arrival.acker.is_live());
        let (deliveries, (mut ackers, mut carried)): (Vec<_>, (Vec<_>, Vec<_>)) =
            batch.into_iter().map(|Arrival { delivery, acker, carried }| (delivery, (acker, carried))).unzip();
        let verdicts = self.delivery_verdicts(&deliveries, &mut carried);
        let verdicts = extended_all(ackers.iter_mut().collect(), verdicts).await;
        let (mut done, mut alone, mut stopped) = (Vec::new(), Vec::new(), Vec::new());
        let arrivals = deliveries.into_iter().zip(ackers).zip(carried);
        for (((mut delivery, acker), carried), verdict) in arrivals.zip(verdicts) {
            match verdict {
                Verdict::Done(outcome) => {
                    self.brake.fit(&outcome);
                    done.push((delivery, acker, carried.key, outcome));
                }
                Verdict::Single | Verdict::PutOff | Verdict::Lost => alone.push(Arrival { delivery, acker, carried }),
                Verdict::Broke => {
                    delivery.redelivered = true;
                    alone.push(Arrival { delivery, acker, carried });
                }
                Verdict::Stopped => stopped.push(acker),
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
        let deliver = async |arrival: Arrival<A>| {
            if let Some(delivery) = self.deliver(Some(&connection), arrival).await {
                self.park(delivery, parked).await;
            }
        };
        stream::iter(alone).for_each_concurrent(None, deliver).await;
    }

    async fn delivery_verdicts(&self, deliveries: &[Box<Delivery>], carried: &mut [Carried]) -> Vec<Verdict> {
        let beside = self.suspect_lock.direct().await;
        let items = self.items(deliveries, carried);
        for item in &items {
            item.all().for_each(|at| carried[at].key = Some(item.identity.key.clone()));
        }
        let facts: Vec<&Delivery> = deliveries.iter().map(|delivery| &**delivery).collect();
        let running = Running::new(Permit::Direct(beside));
        running.during(&self.outage, pin!(self.verdicts(items, &facts, Opening::Claims, &running))).await
    }

    /// Runs rows taken from the inbox, none of them a suspect, in one transaction, and returns their verdicts. Extends
    /// their leases if it takes long.
    pub(crate) async fn row_verdicts(&self, rows: &[Row], running: &Running) -> Vec<Verdict> {
        let opening = Opening::Rows(rows);
        let facts: Vec<&Delivery> = rows.iter().map(|row| &row.delivery).collect();
        match running.user_code().map(|_user_code| self.rows(rows)) {
            Some(items) => self.verdicts(items, &facts, opening, running).await,
            None => vec![Verdict::PutOff; rows.len()],
        }
    }

    /// Returns a verdict for each of `facts`, in their order; those that are not items are to be processed alone.
    async fn verdicts(
        &self,
        items: Vec<Item<'_, S>>,
        facts: &[&Delivery],
        opening: Opening<'_>,
        running: &Running,
    ) -> Vec<Verdict> {
        let mut verdicts = vec![Verdict::Single; facts.len()];
        let _turn = self.throttle.turn().await;
        let mut rounds = Groups { groups: vec![(items, false)], holds: 0 };
        let (mut first, mut extended) = (true, Instant::now());
        while let Some((mut items, failed)) = rounds.groups.pop() {
            // A single item is processed alone, where failures are charged.
            if items.len() < 2 {
                continue;
            }
            let instead = match self.draining.is_cancelled() {
                true => Some(Verdict::Stopped),
                false => (!first && opening.is_kept_out(&self.suspect_lock)).then_some(Verdict::PutOff),
            };
            if let Some(verdict) = instead {
                set_verdict(&mut verdicts, &items, &verdict);
                continue;
            }
            first = false;
            let round = self.run_transaction(&mut items, facts, opening, running).await;
            if let Opening::Rows(rows) = opening
                && !matches!(round, TransactionResult::Done(_))
                && extended.elapsed() >= self.settings.lease / 4
            {
                // The task that extends leases at a third of their duration skips locked rows, and may have met one of
                // our rounds each time.
                self.extend_rows(rows).await;
                extended = Instant::now();
            }
            self.apply_result(round, (items, failed), &mut rounds, &mut verdicts).await;
        }
        verdicts
    }

    /// Sets verdicts, or forms new groups of these items.
    async fn apply_result<'a>(
        &self,
        round: TransactionResult,
        (mut items, failed): Group<'a, S>,
        rounds: &mut Groups<'a, S>,
        verdicts: &mut [Verdict],
    ) {
        match round {
            TransactionResult::Done(found) => {
                self.throttle.grow();
                for (item, verdict) in items.chunks(1).zip(found) {
                    set_verdict(verdicts, item, &verdict);
                }
            }
            TransactionResult::Without(out) => {
                let mut index = 0;
                items.retain(|_| (!out.contains(&index), index += 1).0);
                // After a second failure the rest is halved, so that many failures do not cost one round each.
                if failed { rounds.halve((items, true)) } else { rounds.groups.push((items, true)) }
            }
            TransactionResult::Split => rounds.halve((items, failed)),
            TransactionResult::Outage(fault) => {
                self.outage.report(&fault);
                self.pause(rounds.holds).await;
                rounds.holds += 1;
                // One of them may be the message that takes too long.
                let splits = matches!(fault, StoreError::ConnectionLost(_)) && rounds.holds > UNANSWERED;
                if splits { rounds.halve((items, failed)) } else { rounds.groups.push((items, failed)) }
            }
            TransactionResult::All(verdict) => set_verdict(verdicts, &items, &verdict),
        }
    }
}

/// Items that run in one round, and whether one of them has failed before.
type Group<'a, S> = (Vec<Item<'a, S>>, bool);

/// The groups that are still to run.
struct Groups<'a, S: Store> {
    groups: Vec<Group<'a, S>>,
    /// How often a round got no response.
    holds: usize,
}

impl<'a, S: Store> Groups<'a, S> {
    fn halve(&mut self, (mut items, failed): Group<'a, S>) {
        let half = items.split_off(items.len() / 2);
        self.groups.push((half, failed));
        self.groups.push((items, failed));
    }
}

impl Opening<'_> {
    /// Returns whether a suspect waits, or runs, that needs this work to end.
    fn is_kept_out(&self, lock: &SuspectLock) -> bool {
        match self {
            Self::Claims => lock.keeps_out_direct(),
            Self::Rows(_) => lock.keeps_out_rows(),
        }
    }
}
