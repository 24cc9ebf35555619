//! Handlers stage messages: written in their transactions, in front of COMMIT.

use super::defect::Defect;
use super::state::{MESSAGES, Row, Steps};

const WAITING: Row = Row::Waiting { attempts: 0, due: true };

/// The steps of the handler that stages this message.
pub(super) fn steps(steps: &mut Steps<'_>, message: usize) {
    let state = steps.state;
    let number = u8::try_from(message).unwrap_or_default();
    match state.rows[message] {
        Row::Unwritten => stage(steps, message, number),
        Row::Open | Row::Early => end(steps, message, number),
        _ => {}
    }
}

/// Writes the message. Ids are drawn in this order. Writers of one key hold a common row lock until they commit, and so
/// follow each other.
fn stage(steps: &mut Steps<'_>, message: usize, number: u8) {
    let (world, state) = (steps.world, steps.state);
    let drawn = state.rows[..message].iter().all(|row| *row != Row::Unwritten);
    let locked = world.before(message).any(|before| state.rows[before] == Row::Open);
    if drawn && (!locked || world.has(Defect::StagedBeforeTheLock)) {
        let own = world.has(Defect::StagedInOwnTransaction);
        steps.step("a handler", "stages _", number, |after| {
            after.rows[message] = if own { Row::Early } else { Row::Open };
        });
    }
}

/// Ends the handler's transaction.
fn end(steps: &mut Steps<'_>, message: usize, number: u8) {
    steps.step("a handler", "commits its transaction with _", number, |after| after.rows[message] = WAITING);
    if steps.state.left.rollbacks > 0 {
        steps.setback("a handler", "fails, and its transaction with _ is rolled back", number, |after| {
            after.left.rollbacks -= 1;
            after.rows[message] = Row::RolledBack;
        });
    }
}

/// The messages of the world.
pub(super) fn all(steps: &Steps<'_>) -> std::ops::Range<usize> {
    0..steps.world.messages.len().min(MESSAGES)
}
