//! Writes traces, for tests.

use std::collections::BTreeSet;

use super::shown::Shown;
use crate::property::Property;
use crate::search::{Model, Reach, search};

const SECOND: u64 = 1_000_000_000;

/// Writes a trace: each step takes a nanosecond, and begins when the one before it has ended, unless it is said otherwise.
#[derive(Default)]
pub(crate) struct Writer {
    pub(crate) text: String,
    time: u64,
    steps: u64,
}

impl Writer {
    /// Writes records of lines `process step values`, of the message `m` and the key `k`; or `step/message`, `step@key`; `-`:
    /// of none. A `?` behind the process: no answer. `+7`: seven seconds pass.
    pub(crate) fn all(lines: &[&str]) -> String {
        let mut writer = Self::default();
        lines.iter().for_each(|line| writer.line(line));
        writer.text
    }

    pub(crate) fn line(&mut self, line: &str) {
        if let Some(seconds) = line.strip_prefix('+') {
            self.time += seconds.parse::<u64>().unwrap() * SECOND;
            return;
        }
        let id = self.begin(line);
        if !line.contains('?') {
            self.end(id);
        }
    }

    pub(crate) fn begin(&mut self, line: &str) -> u64 {
        let mut parts = line.splitn(3, ' ');
        let process = parts.next().unwrap_or_default().trim_end_matches('?');
        let (step, values) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
        let (step, key) = step.split_once('@').unwrap_or((step, "k"));
        let (step, message) = step.split_once('/').unwrap_or((step, "m"));
        let (key, message) = if step == "died" { ("", "") } else { (key, message) };
        let (key, message) = (key.trim_matches('-'), message.trim_matches('-'));
        self.steps += 1;
        self.time += 1;
        self.text += &format!(">\t{}\t{}\t{process}\t{step}\t{message}\t{values}\t{key}\n", self.steps, self.time);
        self.steps
    }

    pub(crate) fn end(&mut self, id: u64) {
        self.time += 1;
        self.text += &format!("<\t{id}\t{}\n", self.time);
    }
}

/// A model, and where the sentences of its steps are to be found.
struct Sentences<M>(M, fn(&str) -> Option<&'static [Shown]>);

impl<M: Model> Model for Sentences<M> {
    type State = M::State;

    const PROPERTIES: &'static [Property] = &[];

    fn first(&self) -> M::State {
        self.0.first()
    }

    fn steps(&self, state: &M::State, reach: &mut Reach<'_, Self>) {
        self.0.steps(state, &mut |step, after| {
            assert!((self.1)(step.what).is_some(), "{:?} has no entry in table.rs", step.what);
            reach(step, after);
        });
    }

    fn violates(&self, _: &M::State, _: Property) -> bool {
        false
    }

    fn is_quiet(&self, _: &M::State) -> bool {
        true
    }

    fn canonical(&self, state: M::State) -> M::State {
        self.0.canonical(state)
    }
}

/// Asserts that each step of these worlds has an entry in a table.
pub(crate) fn all_steps_have_entries<M: Model>(
    worlds: impl IntoIterator<Item = M>,
    table: fn(&str) -> Option<&'static [Shown]>,
) {
    for world in worlds {
        search(&Sentences(world, table), &[], 3_000);
    }
}

/// The parts of a refusal that it must have.
#[track_caller]
pub(crate) fn names(refusal: &str, parts: &[&str]) {
    let missing: BTreeSet<_> = parts.iter().filter(|part| !refusal.contains(**part)).collect();
    assert!(missing.is_empty(), "{missing:?} is missing in:\n{refusal}");
}
