//! The items and verdicts of a batch.

use std::cmp::Ordering;

use crate::park::Carried;
use crate::registry::Job;
use crate::routes::{Route, Work};
use crate::runtime::{KeyTicket, Pipeline};
use crate::store::{Identity, Row};
use crate::telemetry::Meters;
use crate::{Delivery, Outcome, Store};

use super::claims::may_share;

/// A message of a batch that can run.
pub(super) struct Item<'a, S: Store> {
    /// Its index in the deliveries or rows of the batch.
    pub(super) at: usize,
    pub(super) route: &'a Route<S>,
    pub(super) identity: Identity,
    /// `None` once a run has taken it; decoded again for another run.
    pub(super) job: Option<Box<dyn Job<S>>>,
    /// Its duplicates in the same batch: they get their verdict from this one's.
    copies: Vec<usize>,
    /// Keeps out other deliveries of the key in this process while the batch is processed. `None` for an inbox row, and if one of
    /// the deliveries has the place already.
    _key_lock: Option<KeyTicket>,
}

impl<S: Store> Item<'_, S> {
    /// The indices of the message and of its duplicates in the batch.
    pub(super) fn all(&self) -> impl Iterator<Item = usize> {
        [self.at].into_iter().chain(self.copies.iter().copied())
    }
}

/// Returns the metrics of each handler of these items, which are sorted by handler.
pub(super) fn meters<'a, S: Store>(items: &'a [Item<'_, S>]) -> impl Iterator<Item = &'a Meters> {
    items.chunk_by(|one, next| one.identity.handler == next.identity.handler).map(|chunk| &chunk[0].route.meters)
}

/// The result of one message of a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The database has responded.
    Done(Outcome),
    /// It has to be processed alone, where a failure is charged to it and to no other message.
    Single,
    /// It has not run, since a suspect comes first: a row is given back, and a delivery waits for the suspect, alone.
    PutOff,
    /// The lease of its row was lost.
    Lost,
    /// The connection was lost during its run. It is processed alone, from the inbox.
    Broke,
    /// The worker is stopping.
    Stopped,
}

impl<S: Store> Pipeline<S> {
    /// Returns the deliveries that can run together, in claim order. All others are processed alone: the unfit, the
    /// redelivered, those that the database has refused or held up before, those whose failure is not recorded yet, those
    /// of natural handlers that stage messages, those that several handlers take, those whose key is in flight elsewhere in
    /// this process, and a different message under a key of the batch.
    pub(super) fn items(&self, deliveries: &[Box<Delivery>], carried: &[Carried]) -> Vec<Item<'_, S>> {
        let fits = |at: usize, it: &Delivery| {
            let is_first = !it.redelivered() && carried[at].tries == 0 && carried[at].charge.is_none();
            is_first && !self.routes.are_several(it)
        };
        let fit = deliveries.iter().enumerate().filter(|(at, delivery)| fits(*at, delivery));
        let fit = fit.filter_map(|(at, it)| Some((at, self.decode(it).ok()?)));
        // Those of a handler that makes an external call are stored first.
        let works = fit.filter(|(_, work)| work.route.external.is_none() && may_share(work.route));
        let works: Vec<(usize, Work<'_, S>)> = works.collect();
        let identity = |index: usize| &works[index].1.identity;
        // Sorts indices, since the items are large. The sort is stable: the first of a key is the one that arrived
        // first.
        let mut order: Vec<usize> = (0..works.len()).collect();
        order.sort_by(|a, b| in_order(identity(*a), identity(*b)));
        let of_one_key = order.chunk_by(|a, b| in_order(identity(*a), identity(*b)).is_eq());
        let with_copies = |indices: &[usize]| {
            let first = indices[0];
            let copies = indices[1..].iter().filter(|index| identity(first).is_copy(identity(**index).fingerprint));
            (first, copies.map(|index| works[*index].0).collect())
        };
        let firsts: Vec<(usize, Vec<usize>)> = of_one_key.map(with_copies).collect();
        let mut works: Vec<_> = works.into_iter().map(Some).collect();
        let item = |(first, copies): (usize, Vec<usize>)| {
            let (at, Work { route, identity, job }) = works[first].take()?;
            let key = (identity.handler, &identity.key);
            let is_held = |at: usize| carried[at].keys.contain(&self.key_locks, key);
            // A delivery that waited for the key holds its place beyond the batch, in case it then has to run alone.
            let key_lock = match is_held(at) || copies.iter().any(|copy| is_held(*copy)) {
                true => None,
                false => Some(self.key_locks.first_place(key)?),
            };
            Some(Item { at, route, identity, job: Some(job), copies, _key_lock: key_lock })
        };
        firsts.into_iter().filter_map(item).collect()
    }

    /// Returns the rows that can run together. Those without a key go back through decode and key, each alone.
    pub(super) fn rows(&self, rows: &[Row]) -> Vec<Item<'_, S>> {
        let item = |(at, row): (usize, &Row)| {
            let route = self.routes.get(row.identity.handler).filter(|_| row.identity.has_key())?;
            // A row that has lost its connection may be the one that breaks it, and would break it for all. One without the
            // answer to its call is moved, alone, and so is one of a call that this handler does not make.
            let fits = match &route.external {
                Some(call) => row.answer.is_some() && call.limits.is_of(row),
                None => !row.may_have_called(),
            };
            if row.lost_connections > 0 || !fits {
                return None;
            }
            self.limit(&row.delivery).ok()?;
            let job = self.again(route, &row.delivery, &row.identity).ok();
            let identity = row.identity.clone();
            job.is_some().then(|| Item { at, route, identity, job, copies: Vec::new(), _key_lock: None })
        };
        let mut items: Vec<Item<'_, S>> = rows.iter().enumerate().filter_map(item).collect();
        items.sort_unstable_by(|a, b| in_order(&a.identity, &b.identity));
        items
    }
}

/// Compares by claim order: two transactions that claim in the same order cannot deadlock.
fn in_order(a: &Identity, b: &Identity) -> Ordering {
    a.place().cmp(&b.place())
}

/// Sets the verdict of items and of their duplicates in the batch. A copy of a processed message is a duplicate.
pub(super) fn set_verdict<S: Store>(verdicts: &mut [Verdict], items: &[Item<'_, S>], verdict: &Verdict) {
    let copies = match verdict {
        Verdict::Done(Outcome::Processed) => &Verdict::Done(Outcome::Duplicate),
        other => other,
    };
    for item in items {
        verdicts[item.at] = verdict.clone();
        item.copies.iter().for_each(|copy| verdicts[*copy] = copies.clone());
    }
}
