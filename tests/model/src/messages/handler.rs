//! The result of a handler's run.

use super::scenario::Handler;
use super::state::State;

/// Whether the handler fails now, which rolls back.
pub(super) fn fails(handler: Handler, state: &State, message: u8) -> bool {
    match handler {
        Handler::Fails => true,
        Handler::FailsOnce | Handler::RunsRollback => state.facts[usize::from(message)].failures == 0,
        Handler::Succeeds | Handler::Kills | Handler::Breaks | Handler::RunsCommit => false,
    }
}

/// Commits the effect of a message.
pub(super) fn effect(after: &mut State, message: u8) {
    let facts = &mut after.facts[usize::from(message)];
    facts.effects += 1;
    facts.kept = true;
}
