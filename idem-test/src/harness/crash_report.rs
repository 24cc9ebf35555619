//! The report of crashes everywhere.

use std::fmt;

use super::phase::Phase;

/// How many points a process died at, by phase. Returned by [`Trial::crash_everywhere`](super::Trial::crash_everywhere)
/// if each message had one effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashReport {
    before_handler: usize,
    in_handler: usize,
    in_commit: usize,
    after: usize,
}

impl CrashReport {
    /// The number of points of a phase.
    pub fn points_in(&self, phase: Phase) -> usize {
        match phase {
            Phase::BeforeHandler => self.before_handler,
            Phase::InHandler => self.in_handler,
            Phase::InCommit => self.in_commit,
            Phase::After => self.after,
        }
    }

    /// The number of all points.
    pub fn points(&self) -> usize {
        Phase::ALL.iter().map(|phase| self.points_in(*phase)).sum()
    }

    /// Sets the number of points of a phase.
    pub(super) fn set(&mut self, phase: Phase, points: usize) {
        *match phase {
            Phase::BeforeHandler => &mut self.before_handler,
            Phase::InHandler => &mut self.in_handler,
            Phase::InCommit => &mut self.in_commit,
            Phase::After => &mut self.after,
        } = points;
    }
}

impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let phases: Vec<String> =
            Phase::ALL.iter().map(|phase| format!("{} {phase}", self.points_in(*phase))).collect();
        write!(f, "{} points, one effect each: {}", self.points(), phases.join(", "))
    }
}
