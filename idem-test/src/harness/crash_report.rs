//! The report of crashes everywhere.

use std::fmt;

use super::phase::Phase;

/// How many points a process died at, by phase. Returned by [`Trial::crash_everywhere`](super::Trial::crash_everywhere)
/// if each message had one effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashReport([usize; Phase::ALL.len()]);

impl CrashReport {
    /// The number of points of a phase.
    pub fn points_in(&self, phase: Phase) -> usize {
        Self::place(phase).map_or(0, |place| self.0[place])
    }

    /// The number of all points.
    pub fn points(&self) -> usize {
        self.0.iter().sum()
    }

    /// Sets the number of points of a phase.
    pub(super) fn set(&mut self, phase: Phase, points: usize) {
        if let Some(place) = Self::place(phase) {
            self.0[place] = points;
        }
    }

    fn place(phase: Phase) -> Option<usize> {
        Phase::ALL.iter().position(|other| *other == phase)
    }
}

/// Names the phases that have points.
impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = Phase::ALL.iter().zip(self.0).filter(|(_, points)| *points > 0);
        let phases: Vec<String> = points.map(|(phase, points)| format!("{points} {phase}")).collect();
        write!(f, "{} points, one effect each: {}", self.points(), phases.join(", "))
    }
}
