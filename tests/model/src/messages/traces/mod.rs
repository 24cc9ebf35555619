//! Traces of real workers: whether the lines of each key are a path of the model.
//!
//! | module | contents |
//! |---|---|
//! | `line`, `values`, `seen` | a line, and what it says |
//! | `world` | the messages and processes of one key, or of two, and the scenario that they make |
//! | `pairs` | which keys are checked together |
//! | `table` | which line each step of the model is |
//! | `at`, `moves`, `lease` | a place on the way, and the next ones: the steps are those of the model |
//! | `replay` | the search for an order of the lines that is a path |
//! | `refusal` | the report if there is none |
//!
//! Workers write a line before they send a statement, and again when its answer is there. Of two statements the order in
//! which the database committed them is certain only if one had its answer before the other began. So every order that the
//! times permit is tried. Steps that write nothing are not in the trace; the search may take them at any time.

mod at;
mod lease;
mod line;
mod moves;
mod pairs;
mod refusal;
mod replay;
mod seen;
mod table;
mod values;
mod world;

#[cfg(test)]
mod tests;

use world::World;

/// What was checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checked {
    /// The number of keys.
    pub keys: usize,
    /// The number of their lines.
    pub lines: usize,
    /// The number of pairs of a suspect and another key.
    pub pairs: usize,
    /// How many places the searches reached.
    pub places: usize,
}

impl std::fmt::Display for Checked {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { keys, lines, pairs, places } = self;
        write!(
            out,
            "{keys} keys with {lines} lines are paths of the model, and so are {pairs} pairs of a suspect and another key; \
             {places} places were searched"
        )
    }
}

/// Checks the trace in this text.
///
/// # Errors
/// The lines of a key are no path of the model: names the key, the first line that is in no order of them, and the steps
/// that were possible instead. Or a line cannot be read, or is no step of the model.
pub fn check_trace(text: &str) -> Result<Checked, String> {
    let lines = line::read(text)?;
    let mut checked = Checked::default();
    for key in line::keys(&lines) {
        let world = World::new(&[key], line::of_keys(&lines, &[key]))?;
        checked.keys += 1;
        checked.lines += world.lines.len();
        checked.places += replay::replay(&world)?;
    }
    for pair in pairs::pairs(&lines) {
        checked.pairs += 1;
        checked.places += replay::replay(&World::new(&pair, line::of_keys(&lines, &pair))?)?;
    }
    Ok(checked)
}
