//! Traces of real processes: whether the lines of a key, of a call or of an outbox are a path of the model.
//!
//! | module | contents |
//! |---|---|
//! | `line`, `values`, `trace_step` | a line, and what it says |
//! | `names` | the names of processes, messages and keys, by number |
//! | `lines`, `done` | the lines that must be a path; those that are done at a place on the way |
//! | `path` | the part of a trace that must be a path, and the places on the way |
//! | `shown` | what a step of the model is in a trace |
//! | `replay` | the search for an order of the lines that is a path |
//! | `refusal` | the report if there is none |
//!
//! A process writes a line before it sends a statement or a request, and again when its answer is there. Of two statements the
//! order in which the database committed them is certain only if one had its answer before the other began. So every order
//! that the times permit is tried. Steps that write nothing are not in the trace; the search may take them at any time.

pub(crate) mod done;
pub(crate) mod line;
pub(crate) mod lines;
pub(crate) mod names;
pub(crate) mod path;
mod refusal;
pub(crate) mod replay;
pub(crate) mod shown;
pub(crate) mod trace_step;
pub(crate) mod values;
#[cfg(test)]
pub(crate) mod writer;
