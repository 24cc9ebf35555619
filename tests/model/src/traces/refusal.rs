//! The report of lines that are no path of the model.

use std::collections::BTreeSet;
use std::fmt::Write;

use super::path::Path;

/// Says which line is not possible, behind which one, and what would have been, at the farthest places.
pub(super) fn refusal<P: Path>(path: &P, farthest: &[P::At]) -> String {
    let lines = &path.lines().all;
    let stop = |at: &P::At| path.done(at).due(lines);
    let stops: BTreeSet<_> = farthest.iter().filter_map(stop).collect();
    let mut text = format!("the lines of {} are no path of the model.\n", path.lines().name);
    let mut report = |what: &str, line: usize| {
        let of = &lines[line];
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{what} record {}: {}", of.number, of.text);
    };
    for stop in &stops {
        report("Not possible:", *stop);
    }
    if let Some(at) = farthest.first() {
        let done = (0..lines.len()).filter(|line| path.done(at).has(*line) && lines[*line].end.is_some());
        match done.max_by_key(|line| lines[*line].end) {
            Some(last) => report("Behind", last),
            None => text.push_str("It is the first one.\n"),
        }
    }
    let hints: BTreeSet<_> = farthest.iter().filter_map(|at| path.hint(at, stop(at)?)).collect();
    for hint in hints {
        let _ = writeln!(text, "{hint}");
    }
    text.push_str("Possible would have been:\n");
    let mut possible = BTreeSet::new();
    for at in farthest {
        path.possible(at, &mut |step| {
            possible.insert(step);
        });
    }
    for step in possible {
        let _ = writeln!(text, "  {step}");
    }
    text
}
