//! The producer publishes another message with the same key and content, for which the provider has to charge, too.

use super::defect::Defect;
use super::state::{Row, Stage, Steps, WORKERS};

/// The first message is completed, and its claim was pruned. The other one is at another position in the stream, so its key is
/// another one. From now on, charges and completions are those of the other message.
pub(super) fn steps(steps: &mut Steps<'_>) {
    let (world, state) = (steps.world, steps.state);
    let is_completed = state.row.is_none() && state.completed > 0;
    let is_quiet = state.workers == [Stage::Idle; WORKERS] && state.flying.iter().all(Option::is_none);
    if state.left.others == 0 || !is_completed || !is_quiet {
        return;
    }
    let other = if world.has(Defect::FirstKeyOfTheContent) { Some(0) } else { state.unused_key() };
    let Some(key) = other else { return };
    steps.setback("the producer", "publishes another message with the same key and content", 0, |after| {
        after.left.others -= 1;
        after.row = Some(Row::stored(key));
        (after.charges, after.completed) = (0, 0);
    });
}
