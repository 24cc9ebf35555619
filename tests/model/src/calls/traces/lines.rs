//! The lines of one message, and the world that they make.

use crate::calls::state::Left;
use crate::calls::world::World;
use crate::traces::line::Line;
use crate::traces::lines::Lines;
use crate::traces::names::number;
use crate::traces::trace_step::TraceStep;

/// Every failure may come, and none of them runs out: after each step there are as many left. No backup is restored, and the
/// message is the only one.
pub(super) const LEFT: Left = Left {
    kills: 9,
    pauses: 9,
    losses: 9,
    busy: 9,
    failures: 9,
    replays: 9,
    resolutions: 9,
    unknown: 9,
    restores: 0,
    rewinds: 0,
    others: 0,
};

/// The lines of one message, and the world that they must be a path of.
pub(super) struct Call {
    pub(super) lines: Lines,
    /// The key under which the provider knows the call, by its place among the keys, if a line names one.
    pub(super) key_of: Vec<Option<usize>>,
    /// Whether the message is one that was stored before the trace began.
    pub(super) is_stored: bool,
    /// The provider is as the lines say.
    pub(super) world: World,
}

impl Call {
    pub(super) fn new(key: &str, lines: Vec<Line>) -> Self {
        let mut keys = Vec::new();
        let key_of = lines.iter().map(|line| line.values.key.as_ref().map(|key| number(&mut keys, key))).collect();
        let at_most_once = lines.iter().any(|line| line.values.keyed == Some(false));
        let reconciles = lines.iter().any(|line| line.values.asks == Some(true) || line.step == TraceStep::Asked);
        let is_stored = !lines.iter().any(|line| line.step == TraceStep::Stored);
        let world = World::traced(at_most_once, reconciles, LEFT);
        let lines = Lines::new(format!("the call of the key {key:?}"), lines);
        Self { lines, key_of, is_stored, world }
    }
}
