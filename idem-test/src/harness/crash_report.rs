//! The report of crashes everywhere.

use std::fmt;

use super::phase::Phase;

/// How many points a process died at, by phase. Returned by [`Trial::crash_everywhere`](super::Trial::crash_everywhere)
/// if each message had one effect.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CrashReport {
    points: [usize; Phase::ALL.len()],
    /// Whether a handler makes an external call whose provider the trial does not see.
    charges_unseen: bool,
}

impl CrashReport {
    /// A report without points.
    pub(super) fn new(charges_unseen: bool) -> Self {
        Self { charges_unseen, ..Self::default() }
    }

    /// The number of points of a phase.
    pub fn points_in(&self, phase: Phase) -> usize {
        Self::place(phase).map_or(0, |place| self.points[place])
    }

    /// The number of all points.
    pub fn points(&self) -> usize {
        self.points.iter().sum()
    }

    /// Sets the number of points of a phase.
    pub(super) fn set(&mut self, phase: Phase, points: usize) {
        if let Some(place) = Self::place(phase) {
            self.points[place] = points;
        }
    }

    fn place(phase: Phase) -> Option<usize> {
        Phase::ALL.iter().position(|other| *other == phase)
    }
}

/// Names the phases that have points, and says `charges unseen` if nothing is known about the effects of external calls: they
/// have no [`provider`](super::Bench::provider).
impl fmt::Display for CrashReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let points = Phase::ALL.iter().zip(self.points).filter(|(_, points)| *points > 0);
        let phases: Vec<String> = points.map(|(phase, points)| format!("{points} {phase}")).collect();
        let unseen = if self.charges_unseen { " (charges unseen)" } else { "" };
        write!(f, "{} points, one effect each{unseen}: {}", self.points(), phases.join(", "))
    }
}
