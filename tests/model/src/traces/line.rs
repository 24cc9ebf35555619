//! The lines of a trace, as workers wrote them.
//!
//! A step has two records, so that the end of a process loses none that had begun: `>`, its number, its time, the
//! process, the step, the message, its values and the key; and `<`, its number and its time, once there was an answer. A
//! step without an answer may have been done at any time since it began, or never. `<` with `nothing`: it did nothing.
//! The parts of a record are separated by tabs.

use std::collections::{BTreeMap, BTreeSet};

use super::trace_step::{Part, TraceStep};
use super::values::Values;

/// One step of one key.
#[derive(Debug, Clone)]
pub(crate) struct Line {
    /// When it began.
    pub(crate) begin: u64,
    /// When its answer was there; `None`: there was none.
    pub(crate) end: Option<u64>,
    /// The process that took it.
    pub(crate) process: String,
    pub(crate) step: TraceStep,
    /// The message: its fingerprint. Empty: any, or none.
    pub(crate) message: String,
    pub(crate) values: Values,
    /// The key; empty: any.
    pub(crate) key: String,
    /// The text of the record, for a report.
    pub(crate) text: String,
    /// The number of the record in its file, from 1.
    pub(crate) number: usize,
}

/// Reads a trace: the lines in the order in which they began. The error names a record that cannot be read, or a step
/// that the model does not know.
pub(crate) fn read(text: &str) -> Result<Vec<Line>, String> {
    let mut lines: BTreeMap<&str, Line> = BTreeMap::new();
    for (number, record) in (1..).zip(text.lines()).filter(|(_, record)| !record.is_empty()) {
        let wrong = |why: &str| format!("record {number} of the trace, {record:?}: {why}");
        match record.split('\t').collect::<Vec<_>>()[..] {
            [">", id, time, process, step, message, values, key] => {
                let line = Line {
                    begin: time.parse().map_err(|_| wrong("its time is no number"))?,
                    end: None,
                    process: process.to_owned(),
                    step: TraceStep::parse(step).ok_or_else(|| wrong("the model does not know this step"))?,
                    message: message.to_owned(),
                    values: Values::parse(values).map_err(|why| wrong(&why))?,
                    key: key.to_owned(),
                    text: format!("{process} {step} {message} {values}").trim_end().to_owned(),
                    number,
                };
                lines.insert(id, line);
            }
            ["<", id, _, "nothing"] => drop(lines.remove(id)),
            ["<", id, time] => {
                let line = lines.get_mut(id).ok_or_else(|| wrong("it ends a step that has not begun"))?;
                line.end = Some(time.parse().map_err(|_| wrong("its time is no number"))?);
            }
            _ => return Err(wrong("it has not the parts of a record")),
        }
    }
    let mut lines: Vec<Line> = lines.into_values().collect();
    lines.sort_by_key(|line| (line.begin, line.number));
    Ok(lines)
}

/// The lines that are steps of a part of the model.
pub(crate) fn of_part(lines: &[Line], part: Part) -> Vec<Line> {
    lines.iter().filter(|line| line.step.is_of(part)).cloned().collect()
}

/// The keys that have lines.
pub(crate) fn keys(lines: &[Line]) -> BTreeSet<&str> {
    lines.iter().map(|line| line.key.as_str()).filter(|key| !key.is_empty()).collect()
}

/// These lines, in order of their begins, with the ends of their processes. A line without a key and without an answer may
/// belong to each key that has lines before and behind it.
pub(crate) fn select(lines: &[Line], is: impl Fn(&Line) -> bool) -> Vec<Line> {
    let mut of: Vec<Line> = lines.iter().filter(|line| is(line)).cloned().collect();
    let first = of.iter().map(|line| line.begin).min().unwrap_or_default();
    let last = of.iter().map(|line| line.end.unwrap_or(line.begin)).max().unwrap_or_default();
    let any =
        |line: &&Line| line.key.is_empty() && line.step != TraceStep::Died && (first..=last).contains(&line.begin);
    of.extend(lines.iter().filter(any).cloned());
    let processes: BTreeSet<String> = of.iter().map(|line| line.process.clone()).collect();
    let died = |line: &&Line| line.step == TraceStep::Died && processes.contains(&line.process);
    of.extend(lines.iter().filter(died).cloned());
    of.sort_by_key(|line| (line.begin, line.number));
    of
}
