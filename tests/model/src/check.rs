//! Checks a trace of real processes against the parts of the model.

use std::fmt::{Display, Formatter};

use crate::traces::line;
use crate::traces::trace_step::Part;
use crate::{calls, messages, relay};

/// The number of things that were checked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Checked {
    /// The number of keys.
    pub keys: usize,
    /// The number of their lines.
    pub lines: usize,
    /// The number of pairs of an orphaned row and another key.
    pub pairs: usize,
    /// The number of messages with an external call.
    pub calls: usize,
    /// The number of messages of an outbox.
    pub outgoing: usize,
    /// How many places the searches reached.
    pub places: usize,
}

impl Display for Checked {
    fn fmt(&self, out: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { keys, lines, pairs, calls, outgoing, places } = self;
        write!(
            out,
            "{keys} keys with {lines} lines are paths of the model, and so are {pairs} pairs of an orphaned row and another key, \
             {calls} messages with a call and {outgoing} messages of an outbox; {places} places were searched"
        )
    }
}

/// Checks the trace in this text: each key against the model of messages, each message with an external call against that
/// of calls, and each message of an outbox against that of relays.
///
/// # Errors
/// The lines of a key, a call or an outbox are no path of the model: names it, the first line that is in no order of them, and the
/// steps that were possible instead. Or a line cannot be read, or is no step of the model.
pub fn check_trace(text: &str) -> Result<Checked, String> {
    let lines = line::read(text)?;
    let of = |part| line::of_part(&lines, part);
    let (keys, count, pairs, places) = messages::check_traces(&of(Part::Messages))?;
    let (called, more) = calls::check_traces(&of(Part::Calls))?;
    let (outgoing, most) = relay::check_traces(&of(Part::Relay))?;
    Ok(Checked { keys, lines: count, pairs, calls: called, outgoing, places: places + more + most })
}
