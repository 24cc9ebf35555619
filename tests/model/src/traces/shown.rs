//! The entry of a step of the model in a trace.

use super::trace_step::TraceStep;

/// The entry of a step of the model in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// A line.
    Line(TraceStep),
    /// A line with an answer.
    Answered(TraceStep),
    /// A line without one.
    Unanswered(TraceStep),
    /// Nothing: it writes nothing, and may be taken at any time.
    Free,
    /// It never happens in a trace: only with a defect, with a log, or where time or prune are searched.
    Never,
}

/// The entries of the steps of a model, by their sentences.
pub(crate) type Table = [(&'static str, &'static [Shown])];

/// The entry of the step with this sentence; `None`: it has none.
pub(crate) fn shown(table: &Table, sentence: &str) -> Option<&'static [Shown]> {
    table.iter().find(|(of, _)| *of == sentence).map(|(_, shown)| *shown)
}

impl Shown {
    /// The name of the line, and whether it has an answer, if that matters. `None`: it is no line.
    pub(crate) fn line(self) -> Option<(TraceStep, Option<bool>)> {
        match self {
            Self::Line(seen) => Some((seen, None)),
            Self::Answered(seen) => Some((seen, Some(true))),
            Self::Unanswered(seen) => Some((seen, Some(false))),
            Self::Free | Self::Never => None,
        }
    }
}
