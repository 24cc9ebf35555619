//! Handlers stage messages: written in their transactions, in front of COMMIT.

use super::defect::Defect;
use super::state::{MESSAGES, Row};
use super::steps::Steps;

const WAITING: Row = Row::Waiting { attempts: 0, due: true };

/// The steps of the handler that stages this message.
pub(super) fn steps(steps: &mut Steps<'_>, message: usize) {
    let (world, state) = (steps.world, steps.state);
    let number = u8::try_from(message).unwrap_or_default();
    match state.rows[message] {
        // Ids are drawn in this order. Writers of one key that hold a common row lock follow each other.
        Row::Unwritten => {
            let drawn = state.rows[..message].iter().all(|row| *row != Row::Unwritten);
            let locked = world.before(message).any(|before| state.rows[before] == Row::Open);
            if drawn && (!locked || world.has(Defect::StagedBeforeTheLock)) {
                let own = world.has(Defect::StagedInOwnTransaction);
                steps.step("a handler", "stages _", number, |after| {
                    after.rows[message] = if own { Row::Early } else { Row::Open };
                });
            }
        }
        Row::Open | Row::Early => {
            steps.step("a handler", "commits its transaction with _", number, |after| after.rows[message] = WAITING);
            if state.left.rollbacks > 0 {
                steps.setback("a handler", "fails, and its transaction with _ is rolled back", number, |after| {
                    after.left.rollbacks -= 1;
                    after.rows[message] = Row::RolledBack;
                });
            }
        }
        _ => {}
    }
}

/// The messages of the world.
pub(super) fn all(steps: &Steps<'_>) -> std::ops::Range<usize> {
    0..steps.world.messages.len().min(MESSAGES)
}
