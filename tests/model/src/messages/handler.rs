//! The result of a handler's run.

use super::scenario::{Handler, MAX_ATTEMPTS, MAX_LOST_CONNECTIONS};
use super::state::State;

/// What a handler does in one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    /// It succeeds.
    Succeeds,
    /// It fails, which rolls back.
    Fails,
    /// It ends its process.
    Kills,
    /// It breaks its connection.
    Breaks,
    /// It runs COMMIT, and loses its connection before it returns.
    RunsCommit,
}

/// What the handler of a message may do now.
pub(super) fn acts(handler: Handler, state: &State, message: u8) -> &'static [Act] {
    let failed = state.facts[usize::from(message)].failures > 0;
    match handler {
        Handler::Fails => &[Act::Fails],
        Handler::FailsOnce | Handler::RunsRollback if !failed => &[Act::Fails],
        Handler::Succeeds | Handler::FailsOnce | Handler::RunsRollback => &[Act::Succeeds],
        Handler::Kills => &[Act::Kills],
        Handler::Breaks => &[Act::Breaks],
        Handler::RunsCommit => &[Act::RunsCommit],
        Handler::Anything => &[Act::Succeeds, Act::Fails, Act::Breaks, Act::RunsCommit],
    }
}

/// Whether a message is dead that has failed so often. Two answers: either, as its handler or its worker decides.
pub(super) fn gives_up(handler: Handler, attempts: u8) -> &'static [bool] {
    match handler {
        _ if attempts == 0 => &[false],
        Handler::Anything => &[false, true],
        _ if attempts >= MAX_ATTEMPTS => &[true],
        _ => &[false],
    }
}

/// The number of breaks that makes a message a dead letter.
pub(super) fn max_breaks(handler: Handler) -> u8 {
    if handler == Handler::Anything { REAL_BREAKS } else { MAX_LOST_CONNECTIONS }
}

/// The number of breaks that makes a message a dead letter in the code.
const REAL_BREAKS: u8 = 10;

/// Commits the effect of a message.
pub(super) fn effect(after: &mut State, message: u8) {
    let facts = &mut after.facts[usize::from(message)];
    facts.effects += 1;
    facts.kept = true;
}
