//! The search for the points of a phase, one run after another.

use super::phase::Phase;
use super::polls::Point;

/// How many runs in a row have to get through a phase before it ends. The number of polls differs a little from run to
/// run, since an answer may be there at once.
const THROUGH: usize = 2;

/// How often the points of a phase are searched again if no process died behind its effect.
const AGAIN: usize = 10;

/// The points of a phase so far.
#[derive(Debug)]
pub(super) struct Search {
    phase: Phase,
    /// Whether a process has to die behind the effect of the phase.
    needs_effect: bool,
    /// The number of the last point at which a process died.
    number: usize,
    /// The highest such number.
    pub(super) points: usize,
    /// How many runs in a row got through.
    through: usize,
    /// Whether a process had made the effect when it died.
    pub(super) had_effect: bool,
    again: usize,
}

impl Search {
    pub(super) fn new(phase: Phase, needs_effect: bool) -> Self {
        Self { phase, needs_effect, number: 0, points: 0, through: 0, had_effect: false, again: 0 }
    }

    /// Returns the point of the next run, or `None` when all have been found.
    pub(super) fn next(&mut self) -> Option<Point> {
        if self.through >= THROUGH {
            // The answers came at an earlier poll than in the run before, whose process died in front of its answer. The point
            // behind the answer of these runs has a number that has been passed.
            if !self.needs_effect || self.had_effect || self.again == AGAIN {
                return None;
            }
            (self.number, self.through, self.again) = (0, 0, self.again + 1);
        }
        Some(Point { phase: self.phase, number: self.number + 1 })
    }

    /// Notes that the process of the last run died at its point, and whether it had made the effect.
    pub(super) fn died(&mut self, had_effect: bool) {
        (self.number, self.through) = (self.number + 1, 0);
        self.points = self.points.max(self.number);
        self.had_effect |= had_effect;
    }

    /// Notes that the last run got through the phase.
    pub(super) fn got_through(&mut self) {
        self.through += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Searches with runs whose COMMIT is answered at these polls; then each is answered at once.
    fn search(phase: Phase, answered: &[usize]) -> Search {
        let (mut search, mut runs) = (Search::new(phase, phase == Phase::InCommit), answered.iter());
        while let Some(point) = search.next() {
            // A process also dies behind the answer.
            let answered = *runs.next().unwrap_or(&1);
            if point.number <= answered + 1 { search.died(point.number > answered) } else { search.got_through() }
        }
        search
    }

    #[test]
    fn a_process_dies_behind_an_answer_that_comes_ever_earlier() {
        let search = search(Phase::InCommit, &[3, 3, 3, 1, 1]);
        assert_eq!((search.had_effect, search.points), (true, 3));
    }

    #[test]
    fn each_point_is_found_and_two_runs_get_through() {
        let search = search(Phase::InHandler, &[2, 2, 2, 1, 2, 2]);
        assert_eq!((search.points, search.again), (3, 0));
    }
}
