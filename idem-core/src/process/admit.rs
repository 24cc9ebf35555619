//! Which deliveries of a batch run together.

use crate::park::Carried;
use crate::routes::Route;
use crate::run::Work;
use crate::runtime::{KeyTicket, Pipeline};
use crate::{Delivery, Store};

/// The deliveries of a batch that run together.
pub(super) struct Admitted<'a, S: Store> {
    /// In claim order: two transactions that claim in the same order cannot deadlock.
    pub(super) works: Vec<Work<'a, S>>,
    /// The indices of their duplicates in the batch, each with that of its first, whose result is its own.
    pub(super) copies: Vec<(usize, usize)>,
    /// Keep out other deliveries of the keys in this process while the batch runs.
    _keys: Vec<KeyTicket>,
}

impl<S: Store> Pipeline<S> {
    /// Returns the deliveries that can run together. All others are processed alone: the unfit, the redelivered, those that the
    /// database has refused or held up before, those whose failure is not recorded yet, those of natural handlers that stage
    /// messages, those that several handlers take, those whose key is in flight elsewhere in this process, and a different
    /// message under a key of the batch.
    pub(super) fn admit<'a>(&'a self, batch: &[(&'a Delivery, &mut Carried)]) -> Admitted<'a, S> {
        let fits = |(delivery, carried): &(&Delivery, &mut Carried)| {
            let is_first = !delivery.redelivered() && carried.tries == 0 && carried.charge.is_none();
            is_first && !self.routes.are_several(delivery)
        };
        let fit = batch.iter().enumerate().filter(|&(_, arrived)| fits(arrived));
        let fit = fit.filter_map(|(at, &(delivery, _))| Some(Work { at, ..self.decode(delivery).ok()? }));
        // Those of a handler that makes an external call are stored first.
        let mut fit: Vec<_> = fit.filter(|work| work.route.external.is_none() && may_share(work.route)).collect();
        // The sort is stable: the first of a key is the one that arrived first.
        fit.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        let (mut works, mut copies) = (Vec::<Work<'_, S>>::with_capacity(fit.len()), Vec::new());
        for work in fit {
            match works.last().filter(|first| first.identity.place() == work.identity.place()) {
                Some(first) if first.identity.is_copy(work.identity.fingerprint) => copies.push((work.at, first.at)),
                Some(_) => {}
                None => works.push(work),
            }
        }
        let mut keys = Vec::with_capacity(works.len());
        works.retain(|first| {
            let key = (first.identity.handler, &first.identity.key);
            let of_first = copies.iter().filter(|(_, of)| *of == first.at).map(|(copy, _)| *copy);
            // A delivery that waited for the key holds its place beyond the batch, in case it then has to run alone.
            if of_first.chain([first.at]).any(|at| batch[at].1.keys.contain(&self.key_locks, key)) {
                return true;
            }
            let place = self.key_locks.first_place(key);
            let is_first = place.is_some();
            keys.extend(place);
            is_first
        });
        Admitted { works, copies, _keys: keys }
    }
}

/// Returns whether a delivery of this handler may share a transaction. One that has no claim may run twice: if another
/// handler runs COMMIT, all messages without claims run again. A handler that then finds its own writes could leave out
/// what it has staged in the first run, which that COMMIT has not written.
fn may_share<S: Store>(route: &Route<S>) -> bool {
    !(route.is_unclaimed && route.handler.facts().stages)
}
