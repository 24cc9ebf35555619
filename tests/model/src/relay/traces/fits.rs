//! Whether a line says what a step of the model does.

use super::at::At;
use super::queue::Queue;
use crate::relay::state::{Row, State};
use crate::step::Step;
use crate::traces::line::Line;
use crate::traces::trace_step::TraceStep;

const MILLISECOND: u64 = 1_000_000;
/// The time that a clock of milliseconds cuts off.
const CUT: u64 = 2 * MILLISECOND;

/// Whether a line says what a step does. `relay`: whose step it is.
pub(super) fn fits(queue: &Queue, at: &At, line: usize, (step, relay): (Step, Option<usize>), after: &State) -> bool {
    let (of, message) = (&queue.lines.all[line], usize::from(step.message));
    let is_dead = after.rows[message] == Row::Dead;
    let is_read = |relay: usize| of.step != TraceStep::Published || at.read[relay][message];
    queue.message_of[line].is_none_or(|of| of == step.message)
        && of.values.dead.is_none_or(|dead| dead == is_dead)
        && relay.is_none_or(is_read)
        && !is_early(at, of)
        && !is_late(at, of, relay)
}

/// Whether a line takes the lease during the lease of another relay.
pub(super) fn is_early(at: &At, line: &Line) -> bool {
    line.step == TraceStep::LeaseTaken && line.end.is_some_and(|end| end + CUT < at.leased)
}

/// Whether a line publishes after the lease of its relay.
pub(super) fn is_late(at: &At, line: &Line, relay: Option<usize>) -> bool {
    line.step == TraceStep::Published && relay.is_some_and(|relay| at.until[relay] < line.begin)
}

/// Notes the lease that a line begins or ends. It begins no earlier than the line does, and no later than it ends.
pub(super) fn note(next: &mut At, line: &Line, relay: Option<usize>) {
    if line.step == TraceStep::LeaseGiven {
        next.leased = 0;
    }
    let Some((lease, relay)) = line.values.lease.zip(relay) else { return };
    next.leased = line.begin + lease * MILLISECOND;
    next.until[relay] = line.end.map_or(u64::MAX, |end| end + lease * MILLISECOND);
}
