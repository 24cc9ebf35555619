//! Which deliveries of a batch run, or are stored, together.

use tracing::Span;

use crate::caught::dropped;
use crate::park::Carried;
use crate::routes::Route;
use crate::run::Work;
use crate::runtime::{KeyTicket, Pipeline};
use crate::{Delivery, Store};

/// The deliveries of a batch that run, or are stored, together. Both are in claim order: two transactions that claim in the
/// same order cannot deadlock.
pub(super) struct Admitted<'a, S: Store> {
    pub(super) works: Vec<Work<'a, S>>,
    /// The indices in the batch of the duplicates of those that run, each with that of its first, whose result is its own.
    pub(super) copies: Vec<(usize, usize)>,
    /// Those that are stored, without their messages. Duplicates and conflicts are among them.
    pub(super) stored: Vec<Work<'a, S>>,
    /// Keep out other deliveries of the keys in this process while the batch is in progress.
    pub(super) _keys: Vec<KeyTicket>,
}

impl<S: Store> Pipeline<S> {
    /// Returns the deliveries that can run or be stored together, and remembers their keys. All others are processed alone: the
    /// unfit, those that the database has refused or held up before, those whose failure is not recorded yet, those that several
    /// handlers take, and those whose key is in flight elsewhere in this process. Of those that run, also those of natural
    /// handlers that stage messages, and a different message under a key of the batch.
    ///
    /// `spans`: one for each delivery.
    pub(super) fn admit<'a, 'd: 'a>(
        &'a self,
        batch: &mut [(&'d Delivery, &mut Carried)],
        spans: &[Span],
    ) -> Admitted<'a, S> {
        let mut fit = Vec::with_capacity(batch.len());
        for (at, &mut (delivery, ref mut carried)) in batch.iter_mut().enumerate() {
            let fits = carried.tries == 0 && carried.charge.is_none() && !self.routes.are_several(delivery);
            if fits && let Ok(work) = spans[at].in_scope(|| self.decode(delivery)) {
                carried.key = Some(work.identity.key.clone());
                fit.push(Work { at, ..work });
            }
        }
        // The sort is stable: the first of a key is the one that arrived first.
        fit.sort_by(|one, other| one.identity.place().cmp(&other.identity.place()));
        let (mut keys, mut may_go) = (Vec::with_capacity(fit.len()), Vec::with_capacity(fit.len()));
        for group in fit.chunk_by(|one, next| one.identity.place() == next.identity.place()) {
            let key = (group[0].identity.handler, &group[0].identity.key);
            // A delivery that waited for the key holds its place beyond the batch, in case it then has to run alone. With
            // `.inbox()` there are no lanes, so none of the key runs.
            let is_free =
                self.settings.inbox || group.iter().any(|work| batch[work.at].1.keys.contain(&self.key_locks, key));
            let place = if is_free { None } else { self.key_locks.first_place(key) };
            may_go.extend(group.iter().map(|_| is_free || place.is_some()));
            keys.extend(place);
        }
        let (mut works, mut copies, mut stored) =
            (Vec::<Work<'_, S>>::with_capacity(fit.len()), Vec::new(), Vec::new());
        for (mut work, _) in fit.into_iter().zip(may_go).filter(|(_, may_go)| *may_go) {
            // The row is the intent of its external call.
            if self.stores_first(work.delivery) || work.route.external.is_some() {
                dropped("a message", work.job.take());
                stored.push(work);
                continue;
            }
            match works.last().filter(|first| first.identity.place() == work.identity.place()) {
                Some(first) if first.identity.is_copy(work.identity.fingerprint) => copies.push((work.at, first.at)),
                None if may_share(work.route) => works.push(work),
                _ => {}
            }
        }
        Admitted { works, copies, stored, _keys: keys }
    }
}

/// Returns whether a delivery of this handler may share a transaction. One that has no claim may run twice: if another
/// handler runs COMMIT, all messages without claims run again. A handler that then finds its own writes could leave out
/// what it has staged in the first run, which that COMMIT has not written.
fn may_share<S: Store>(route: &Route<S>) -> bool {
    !(route.is_unclaimed && route.handler.facts().stages)
}
