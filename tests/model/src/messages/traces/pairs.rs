//! The pairs of keys that are checked together: an orphaned row, and a message that its process worked on meanwhile. What an
//! orphaned row keeps out of its process is a rule about two messages.

use std::collections::BTreeSet;

use crate::traces::line::Line;
use crate::traces::trace_step::TraceStep;

/// The keys of each orphaned row and of its neighbours.
pub(super) fn pairs(lines: &[Line]) -> BTreeSet<[&str; 2]> {
    let mut pairs = BTreeSet::new();
    let is_orphan =
        |line: &&Line| line.step == TraceStep::Fetched && line.values.starts.is_some_and(|starts| starts > 1);
    let orphans = lines.iter().filter(is_orphan).filter(|line| !line.key.is_empty());
    for orphan in orphans {
        let until = outcome(lines, orphan);
        let beside = lines.iter().filter(|line| {
            line.process == orphan.process
                && starts(line.step)
                && !line.key.is_empty()
                && line.key != orphan.key
                && line.begin <= until
                && over(lines, line) >= orphan.begin
        });
        pairs.extend(beside.map(|line| {
            let mut pair = [orphan.key.as_str(), line.key.as_str()];
            pair.sort_unstable();
            pair
        }));
    }
    pairs
}

/// Whether a step begins work that an orphaned row may keep out.
fn starts(step: TraceStep) -> bool {
    matches!(step, TraceStep::Claimed | TraceStep::Started | TraceStep::Fetched)
}

/// When the run of an orphaned row that was fetched here was over, or its process.
fn outcome(lines: &[Line], orphan: &Line) -> u64 {
    let ends = |step| matches!(step, TraceStep::Committed | TraceStep::Recorded | TraceStep::Snoozed | TraceStep::Died);
    next(lines, orphan, ends)
}

/// When the work that begins here was over, or its process.
fn over(lines: &[Line], line: &Line) -> u64 {
    let ends = |step| {
        let row = matches!(step, TraceStep::Recorded | TraceStep::Snoozed | TraceStep::Refunded);
        row || matches!(
            step,
            TraceStep::Committed | TraceStep::RolledBack | TraceStep::EndedByHandler | TraceStep::Died
        )
    };
    next(lines, line, ends)
}

/// When the next line of the same key and process ended that is such a step.
fn next(lines: &[Line], from: &Line, is: impl Fn(TraceStep) -> bool) -> u64 {
    let of_key = |line: &&Line| line.key == from.key || line.key.is_empty();
    let behind = lines.iter().filter(|line| line.process == from.process && line.begin > from.begin);
    let ends = behind.filter(of_key).find(|line| is(line.step)).map(|line| line.end.unwrap_or(u64::MAX));
    ends.unwrap_or(u64::MAX)
}
