//! The lines that are done at a place on the way.

use super::line::Line;

/// The lines that are done: one bit for each.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Done(Vec<u64>);

impl Done {
    /// None of these lines.
    pub(crate) fn none(lines: &[Line]) -> Self {
        Self(vec![0; lines.len().div_ceil(64)])
    }

    /// Adds a line.
    pub(crate) fn add(&mut self, line: usize) {
        self.0[line / 64] |= 1 << (line % 64);
    }

    /// Whether a line is done.
    pub(crate) fn has(&self, line: usize) -> bool {
        self.0[line / 64] & (1 << (line % 64)) != 0
    }

    /// The lines that are not done, in order of their begins.
    pub(crate) fn undone<'a>(&'a self, lines: &'a [Line]) -> impl Iterator<Item = (usize, &'a Line)> {
        lines.iter().enumerate().filter(|(line, _)| !self.has(*line))
    }

    /// How many lines with an answer are done. They must all be, while those without one may be left out.
    pub(crate) fn answered(&self, lines: &[Line]) -> usize {
        lines.iter().enumerate().filter(|(line, of)| of.end.is_some() && self.has(*line)).count()
    }

    /// The line with an answer that ended first among those that are not done.
    pub(crate) fn due(&self, lines: &[Line]) -> Option<usize> {
        let ends = self.undone(lines).filter_map(|(line, of)| Some((of.end?, line)));
        ends.min().map(|(_, line)| line)
    }

    /// The lines that may be next: no undone line ended before they began.
    pub(crate) fn open<'a>(&'a self, lines: &'a [Line]) -> impl Iterator<Item = (usize, &'a Line)> {
        let limit = self.due(lines).and_then(|line| lines[line].end).unwrap_or(u64::MAX);
        self.undone(lines).take_while(move |(_, of)| of.begin <= limit)
    }
}
