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
type BatchCall<'a, S> = (&'a Route<S>, Vec<usize>, Vec<Box<dyn Job<S>>>);

/// Returns the calls for the new items, in the order in which their deliveries arrived. A batch handler is called once.
pub(super) fn calls<'a, S: Store>(items: &mut [Item<'a, S>], new: &[usize]) -> Vec<Call<'a, S>> {
    let mut order = new.to_vec();
    order.sort_unstable_by_key(|place| items[*place].at);
    let (mut calls, mut batched): (Vec<Call<'a, S>>, Vec<BatchCall<'a, S>>) = Default::default();
    for place in order {
        let route = items[place].route;
        let Some(job) = items[place].job.take() else { continue };
        if !route.handler.takes_batch() {
            calls.push(Call { places: vec![place], route, job });
            continue;
        }
        match batched.iter_mut().find(|(of, ..)| of.id == route.id) {
            Some((_, places, jobs)) => {
                places.push(place);
                jobs.push(job);
            }
            None => batched.push((route, vec![place], vec![job])),
        }
    }
    let joined =
        |(route, places, jobs): (&'a Route<S>, _, _)| route.handler.join(jobs).map(|job| Call { places, route, job });
    calls.extend(batched.into_iter().filter_map(joined));
    calls
}
