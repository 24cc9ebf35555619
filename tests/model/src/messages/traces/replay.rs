//! The search for an order of the lines of one key that is a path of the model.

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::at::At;
use super::moves::moves;
use super::refusal::refusal;
use super::world::World;

/// The most places that are searched for one key.
const LIMIT: usize = 500_000;
/// How many of the farthest places a refusal looks at.
const FARTHEST: usize = 50;

/// Searches every order of the lines that is possible by their times. Returns the number of places that were reached. The
/// error names the key, the first line that is in none of these orders, and the steps that were possible instead.
pub(super) fn replay(world: &World) -> Result<usize, String> {
    let mut places: IndexSet<At, FixedState> = IndexSet::default();
    let mut open = vec![places.insert_full(At::first(world)).0];
    let (mut most, mut farthest) = (0, Vec::new());
    while let Some(place) = open.pop() {
        let Some(at) = places.get_index(place).cloned() else { break };
        if at.due(world).is_none() {
            return Ok(places.len());
        }
        let done = at.answered(world);
        if done > most {
            (most, farthest) = (done, Vec::new());
        }
        if done == most && farthest.len() < FARTHEST {
            farthest.push(at.clone());
        }
        moves(world, &at, &mut |next| {
            let (place, new) = places.insert_full(next);
            if new {
                open.push(place);
            }
        });
        if places.len() > LIMIT {
            return Err(format!("{}: too many orders are possible, {LIMIT} places were not enough", world.name));
        }
    }
    Err(refusal(world, &farthest))
}
