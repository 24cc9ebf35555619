//! The handler calls that a batch makes.

use crate::Store;
use crate::registry::Job;
use crate::routes::Route;

use super::item::Item;

/// One call of a handler, for the items at these places.
pub(super) struct Call<'a, S: Store> {
    pub(super) places: Vec<usize>,
    pub(super) route: &'a Route<S>,
    pub(super) job: Box<dyn Job<S>>,
}

/// The new items of a batch handler.
type Set<'a, S> = (&'a Route<S>, Vec<usize>, Vec<Box<dyn Job<S>>>);

/// Returns the calls for the new items, in the order in which their deliveries arrived. A batch handler is called once.
pub(super) fn calls<'a, S: Store>(items: &mut [Item<'a, S>], new: &[usize]) -> Vec<Call<'a, S>> {
    let mut order = new.to_vec();
    order.sort_unstable_by_key(|place| items[*place].at);
    let (mut calls, mut sets): (Vec<Call<'a, S>>, Vec<Set<'a, S>>) = Default::default();
    for place in order {
        let route = items[place].route;
        let Some(job) = items[place].job.take() else { continue };
        if !route.handler.is_set() {
            calls.push(Call { places: vec![place], route, job });
            continue;
        }
        match sets.iter_mut().find(|(of, ..)| of.id == route.id) {
            Some((_, places, jobs)) => {
                places.push(place);
                jobs.push(job);
            }
            None => sets.push((route, vec![place], vec![job])),
        }
    }
    let joined =
        |(route, places, jobs): (&'a Route<S>, _, _)| route.handler.join(jobs).map(|job| Call { places, route, job });
    calls.extend(sets.into_iter().filter_map(joined));
    calls
}
