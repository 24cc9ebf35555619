//! Traces of real relays: whether the lines of each message of an outbox, and of the next one of its key, are a path of the
//! model of relays.
//!
//! | module | contents |
//! |---|---|
//! | `staged` | which messages follow each other in the order of a key |
//! | `queue` | the lines of two such messages, and the world that they make |
//! | `table` | which line each step of the model is |
//! | `at`, `fits` | a place on the way; whether a line says what a step does |
//! | `path` | the lines as a path: the next places, by steps of the model |
//!
//! A message is known by the reads of the outbox, which show that it was committed, and in which place. When it was staged is
//! not in the trace.

mod at;
mod fits;
mod path;
mod queue;
mod staged;
mod table;

#[cfg(test)]
mod tests;

use crate::traces::line::Line;
use crate::traces::replay::replay;

use queue::Queue;

/// Checks the lines of each message. Returns how many messages there are, and how many places were searched.
pub(crate) fn check(lines: &[Line]) -> Result<(usize, usize), String> {
    let (mut messages, mut places) = (0, 0);
    for queue in staged::queues(lines) {
        messages += 1;
        places += replay(&Queue::new(lines, &queue))?;
    }
    Ok((messages, places))
}
