//! The search for an order of the lines that is a path of the model.

use foldhash::fast::FixedState;
use indexmap::IndexSet;

use super::path::Path;
use super::refusal::refusal;

/// The most places that are searched for one path.
const LIMIT: usize = 500_000;
/// How many of the farthest places a refusal looks at.
const FARTHEST: usize = 50;

/// Searches every order of the lines that is possible by their times. Returns the number of places that were reached. The
/// error names the lines, the first of them that is in none of these orders, and the steps that were possible instead.
pub(crate) fn replay<P: Path>(path: &P) -> Result<usize, String> {
    let lines = path.lines();
    let mut places: IndexSet<P::At, FixedState> = IndexSet::default();
    let mut open = vec![places.insert_full(path.first()).0];
    let (mut most, mut farthest) = (0, Vec::new());
    while let Some(place) = open.pop() {
        let Some(at) = places.get_index(place).cloned() else { break };
        let done = path.done(&at);
        if done.due(&lines.all).is_none() {
            return Ok(places.len());
        }
        let answered = done.answered(&lines.all);
        if answered > most {
            (most, farthest) = (answered, Vec::new());
        }
        if answered == most && farthest.len() < FARTHEST {
            farthest.push(at.clone());
        }
        path.moves(&at, &mut |next| {
            let (place, new) = places.insert_full(next);
            if new {
                open.push(place);
            }
        });
        if places.len() > LIMIT {
            return Err(format!("{}: too many orders are possible, {LIMIT} places were not enough", lines.name));
        }
    }
    Err(refusal(path, &farthest))
}
