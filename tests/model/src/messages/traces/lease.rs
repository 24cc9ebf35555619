//! The leases of rows, by the times in the lines. In the model, a lease may end at any time.

use super::at::At;
use crate::messages::database::Holder;
use crate::traces::line::Line;
use crate::traces::trace_step::TraceStep;

const MILLISECOND: u64 = 1_000_000;
/// What a clock of milliseconds cuts off.
const CUT: u64 = 2 * MILLISECOND;

/// The earliest end of the lease that goes on at a place, if a line fetches its row: of a worker that lives, or of one that
/// is gone. `None`: no worker has the row, or the lease was over when the line had its answer.
pub(super) fn going_on(at: &At, line: &Line, message: u8) -> Option<u64> {
    let place = usize::from(message);
    let is_held = at.state.rows[place].is_some_and(|row| row.holder != Holder::Nobody);
    let end = line.end.filter(|_| line.step == TraceStep::Fetched && is_held)?;
    Some(at.leased[place]).filter(|lease| end + CUT < *lease)
}

/// Notes the lease that a line begins. It begins no earlier than the line does.
pub(super) fn note(next: &mut At, line: &Line, message: u8) {
    if let Some(lease) = line.values.lease {
        next.leased[usize::from(message)] = line.begin + lease * MILLISECOND;
    }
}
