//! What a batch is made of.

use std::collections::HashMap;

use crate::pipeline::Pipeline;
use crate::registry::{Job, Route};
use crate::store::{HandlerId, Identity, Row};
use crate::worker::Flight;
use crate::{Delivery, Key, Outcome, Store};

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
    _flight: Option<Flight<'a>>,
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
    /// redelivered, what is in flight elsewhere in this process, and another message under a key of the batch.
    pub(super) fn items(&self, deliveries: &[Delivery]) -> Vec<Item<'_, S>> {
        let mut items: Vec<Item<'_, S>> = Vec::with_capacity(deliveries.len());
        let mut seen: HashMap<(HandlerId, Key), usize> = HashMap::with_capacity(deliveries.len());
        for (at, delivery) in deliveries.iter().enumerate().filter(|(_, delivery)| !delivery.redelivered()) {
            let Ok(work) = self.receive(delivery) else { continue };
            let id = (work.identity.handler, work.identity.key);
            if let Some(first) = seen.get(&id).map(|first| &mut items[*first]) {
                if first.identity.fingerprint == work.identity.fingerprint {
                    first.copies.push(at);
                }
                continue;
            }
            let Some(flight) = self.flights.try_enter(id.0, &id.1) else { continue };
            seen.insert(id, items.len());
            let (route, identity, job) = (work.route, work.identity, Some(work.job));
            items.push(Item { at, route, identity, attempts: 0, job, copies: Vec::new(), _flight: Some(flight) });
        }
        sorted(items)
    }

    /// The rows that can run together. Those without a key go back through decode and key, each alone.
    pub(super) fn rows(&self, rows: &[Row]) -> Vec<Item<'_, S>> {
        let item = |(at, row): (usize, &Row)| {
            let route = self.routes.get(row.identity.handler).filter(|_| !row.identity.key.as_bytes().is_empty())?;
            self.limit(&row.delivery).ok()?;
            let job = self.again(route, &row.delivery, &row.identity).ok();
            let (identity, attempts) = (row.identity.clone(), row.attempts);
            job.is_some().then(|| Item { at, route, identity, attempts, job, copies: Vec::new(), _flight: None })
        };
        sorted(rows.iter().enumerate().filter_map(item).collect())
    }
}

/// Two transactions that claim in the same order never wait for each other in a circle.
fn sorted<S: Store>(mut items: Vec<Item<'_, S>>) -> Vec<Item<'_, S>> {
    let order = |item: &Item<'_, S>| (item.identity.handler.0, item.identity.key);
    items.sort_unstable_by(|a, b| {
        let ((one, key), (other, next)) = (order(a), order(b));
        one.cmp(&other).then_with(|| key.as_bytes().cmp(next.as_bytes()))
    });
    items
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
