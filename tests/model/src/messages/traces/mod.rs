//! Traces of real workers: whether the lines of each key are a path of the model of messages.
//!
//! | module | contents |
//! |---|---|
//! | `world` | the messages and processes of one key, or of two, and the scenario that they make |
//! | `pairs` | which keys are checked together |
//! | `table` | which line each step of the model is |
//! | `at`, `lease` | a place on the way; the leases of rows |
//! | `path` | the lines as a path: the next places, by steps of the model |

mod at;
mod lease;
mod pairs;
mod path;
mod table;
mod world;

#[cfg(test)]
mod tests;

use crate::traces::line::{self, Line};
use crate::traces::replay::replay;

use world::World;

/// The number of keys, of their lines, of pairs of an orphaned row and another key, and of places that were searched.
pub(crate) type Keys = (usize, usize, usize, usize);

/// Checks the lines of each key, and of each pair of an orphaned row and another key.
pub(crate) fn check(lines: &[Line]) -> Result<Keys, String> {
    let of = |keys: &[&str]| World::new(keys, line::select(lines, |line| keys.contains(&line.key.as_str())));
    let (mut keys, mut count, mut pairs, mut places) = Keys::default();
    for key in line::keys(lines) {
        let world = of(&[key])?;
        keys += 1;
        count += world.lines.all.len();
        places += replay(&world)?;
    }
    for pair in pairs::pairs(lines) {
        pairs += 1;
        places += replay(&of(&pair)?)?;
    }
    Ok((keys, count, pairs, places))
}
