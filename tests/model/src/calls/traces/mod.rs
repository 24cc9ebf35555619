//! Traces of real workers: whether the lines of each message with an external call are a path of the model of calls.
//!
//! | module | contents |
//! |---|---|
//! | `lines` | the lines of one message, and the world that they make |
//! | `table` | which line each step of the model is |
//! | `at`, `fits` | a place on the way; whether a line says what a step does |
//! | `path` | the lines as a path: the next places, by steps of the model |
//!
//! The provider is not in the trace: a request whose worker has not seen its end may have had an effect, or not. Of a completion
//! there are its begin and its end; that its row was fetched, and that its failure was recorded, is checked against the model of
//! messages.

mod at;
mod fits;
mod lines;
mod path;
mod table;

#[cfg(test)]
mod refused;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::traces::line::{self, Line};
use crate::traces::replay::replay;

use lines::Call;

/// Checks the lines of each message that was called for. Returns how many there are, and how many places were searched.
pub(crate) fn check(lines: &[Line]) -> Result<(usize, usize), String> {
    let called = lines.iter().filter(|line| line.step.is_of_call() && !line.key.is_empty());
    let keys: BTreeSet<&str> = called.map(|line| line.key.as_str()).collect();
    let (mut calls, mut places) = (0, 0);
    for key in keys {
        for message in messages(lines, key) {
            let is = |line: &Line| line.key == key && (line.message.is_empty() || line.message == message);
            calls += 1;
            places += replay(&Call::new(key, line::select(lines, is)))?;
        }
    }
    Ok((calls, places))
}

/// The messages of a key that were called for. Lines of a call may name none.
fn messages<'a>(lines: &'a [Line], key: &str) -> BTreeSet<&'a str> {
    let named = lines.iter().filter(|line| line.key == key && !line.message.is_empty());
    named.filter(|line| line.step.is_of_call()).map(|line| line.message.as_str()).collect()
}
