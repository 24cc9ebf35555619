//! What a batch is made of.

use std::cmp::Ordering;

use crate::registry::{Job, Route, Work};
use crate::runtime::{Pipeline, Place};
use crate::store::{Identity, Row};
use crate::{Delivery, Outcome, Store};

/// A message of a batch that can run.
pub(super) struct Item<'a, S: Store> {
    /// Its place among the deliveries or rows of the batch.
    pub(super) at: usize,
    pub(super) route: &'a Route<S>,
    pub(super) identity: Identity,
    /// How many attempts have failed before.
    pub(super) attempts: u32,
    /// Taken by its run; decoded anew for another one.
    pub(super) job: Option<Box<dyn Job<S>>>,
    /// Copies in the same batch: they have the verdict of this one.
    copies: Vec<usize>,
    /// Keeps other deliveries of the key in this process out, for as long as the batch is worked on.
    _flight: Option<Place>,
}

/// What one message of a batch came to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The database has answered.
    Done(Outcome),
    /// It has to be taken alone: nobody but itself is charged with what becomes of it there.
    Alone,
    /// The lease of its row was lost.
    Lost,
    /// The connection was lost with it, so that it goes by way of the inbox, alone.
    Broke,
    /// The worker stops.
    Stopped,
}

impl<S: Store> Pipeline<S> {
    /// The deliveries that can run together, sorted as claims are made. What cannot is taken alone: what is unfit or was
    /// redelivered, what the database has refused before, what is in flight elsewhere in this process, and another message under a key of the batch.
    pub(super) fn items(&self, deliveries: &[Delivery]) -> Vec<Item<'_, S>> {
        let fits = |delivery: &Delivery| !delivery.redelivered() && delivery.refused.tries() == 0;
        let fit = deliveries.iter().enumerate().filter(|(_, delivery)| fits(delivery));
        let works: Vec<(usize, Work<'_, S>)> = fit.filter_map(|(at, it)| Some((at, self.receive(it).ok()?))).collect();
        let identity = |place: usize| &works[place].1.identity;
        // Places are sorted, since what stands there is large. The sort is stable: the first of a key is what came first.
        let mut order: Vec<usize> = (0..works.len()).collect();
        order.sort_by(|a, b| in_order(identity(*a), identity(*b)));
        let of_one_key = order.chunk_by(|a, b| in_order(identity(*a), identity(*b)).is_eq());
        let with_copies = |places: &[usize]| {
            let first = places[0];
            let copies = places[1..].iter().filter(|place| identity(**place) == identity(first));
            (first, copies.map(|place| works[*place].0).collect())
        };
        let firsts: Vec<(usize, Vec<usize>)> = of_one_key.map(with_copies).collect();
        let mut works: Vec<_> = works.into_iter().map(Some).collect();
        let item = |(first, copies): (usize, Vec<usize>)| {
            let (at, Work { route, identity, job }) = works[first].take()?;
            let flight = Some(self.key_locks.first_place((identity.handler, &identity.key))?);
            Some(Item { at, route, identity, attempts: 0, job: Some(job), copies, _flight: flight })
        };
        firsts.into_iter().filter_map(item).collect()
    }

    /// The rows that can run together. Those without a key go back through decode and key, each alone.
    pub(super) fn rows(&self, rows: &[Row]) -> Vec<Item<'_, S>> {
        let item = |(at, row): (usize, &Row)| {
            let route = self.routes.get(row.identity.handler).filter(|_| !row.identity.key.as_bytes().is_empty())?;
            // One that has lost its connection may be the one that breaks it, and would break it for all; one that the
            // database has refused would be refused again.
            if row.breaks > 0 || self.refusals.is_refused(row.id) {
                return None;
            }
            self.limit(&row.delivery).ok()?;
            let job = self.again(route, &row.delivery, &row.identity).ok();
            let (identity, attempts) = (row.identity.clone(), row.attempts);
            job.is_some().then(|| Item { at, route, identity, attempts, job, copies: Vec::new(), _flight: None })
        };
        let mut items: Vec<Item<'_, S>> = rows.iter().enumerate().filter_map(item).collect();
        items.sort_unstable_by(|a, b| in_order(&a.identity, &b.identity));
        items
    }
}

/// Two transactions that claim in the same order never wait for each other in a circle.
fn in_order(a: &Identity, b: &Identity) -> Ordering {
    let ((one, key), (other, next)) = ((a.handler.0, &a.key), (b.handler.0, &b.key));
    one.cmp(&other).then_with(|| key.as_bytes().cmp(next.as_bytes()))
}

/// Gives items and their copies a verdict. A copy of what was processed is a duplicate.
pub(super) fn give<S: Store>(verdicts: &mut [Verdict], items: &[Item<'_, S>], verdict: &Verdict) {
    let copies = match verdict {
        Verdict::Done(Outcome::Processed) => &Verdict::Done(Outcome::Duplicate),
        // It is a dead letter once; what comes again of it is a sighting.
        Verdict::Done(Outcome::Dead { .. }) => &Verdict::Alone,
        other => other,
    };
    for item in items {
        verdicts[item.at] = verdict.clone();
        item.copies.iter().for_each(|copy| verdicts[*copy] = copies.clone());
    }
}
