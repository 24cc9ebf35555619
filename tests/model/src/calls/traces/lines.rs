//! The lines of one message, and the world that they make.

use crate::calls::state::Left;
use crate::calls::world::World;
use crate::traces::line::Line;
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
    /// The key, for a report.
    pub(super) name: String,
    pub(super) lines: Vec<Line>,
    /// The process of each line, by its place among the names.
    pub(super) process_of: Vec<usize>,
    /// The names of the processes.
    pub(super) processes: Vec<String>,
    /// The key under which the provider knows the call, by its place among the keys, if a line names one.
    pub(super) key_of: Vec<Option<usize>>,
    /// Whether the message is one that was stored before the trace began.
    pub(super) is_stored: bool,
    /// The provider is as the lines say.
    pub(super) world: World,
}

impl Call {
    pub(super) fn new(key: &str, lines: Vec<Line>) -> Self {
        let (mut processes, mut keys) = (Vec::new(), Vec::new());
        let process_of = lines.iter().map(|line| number(&mut processes, &line.process)).collect();
        let key_of = lines.iter().map(|line| line.values.key.as_ref().map(|key| number(&mut keys, key))).collect();
        let at_most_once = lines.iter().any(|line| line.values.keyed == Some(false));
        let reconciles = lines.iter().any(|line| line.values.asks == Some(true) || line.step == TraceStep::Asked);
        let name = format!("the call of the key {key:?}");
        let is_stored = !lines.iter().any(|line| line.step == TraceStep::Stored);
        let world = World::traced(at_most_once, reconciles, LEFT);
        Self { name, lines, process_of, processes, key_of, is_stored, world }
    }

    /// The line that says that a process has ended.
    pub(super) fn death(&self, process: usize) -> Option<usize> {
        (0..self.lines.len())
            .find(|line| self.lines[*line].step == TraceStep::Died && self.process_of[*line] == process)
    }
}
