//! Changes of a trace.

use super::checker::refused;

/// A trace, as the pairs of records of its steps.
#[derive(Clone)]
pub(crate) struct Trace(Vec<Step>);

/// The parts of the records of a step.
#[derive(Clone)]
struct Step {
    begin: Vec<String>,
    end: Option<Vec<String>>,
}

impl Trace {
    pub(crate) fn of(text: &str) -> Self {
        let records: Vec<Vec<String>> =
            text.lines().map(|line| line.split('\t').map(ToOwned::to_owned).collect()).collect();
        let steps = records.iter().filter(|record| record[0] == ">").map(|begin| Step {
            begin: begin.clone(),
            end: records.iter().find(|record| record[0] == "<" && record[1] == begin[1]).cloned(),
        });
        Self(steps.collect())
    }

    pub(crate) fn text(&self) -> String {
        let records = self.0.iter().flat_map(|step| [Some(&step.begin), step.end.as_ref()]).flatten();
        records.map(|record| record.join("\t") + "\n").collect()
    }

    /// The places of the steps of this name that were done, and of keys whose end is in the trace.
    fn places(&self, name: &str) -> Vec<usize> {
        let is_left = |key: &str| self.0.iter().any(|step| step.name() == "left" && step.key() == key);
        let is = |place: &usize| {
            let step = &self.0[*place];
            // A claim whose process ended in the handler leaves nothing behind.
            let next = self.0[*place + 1..].iter().find(|next| next.key() == step.key());
            let is_gone = name == "claimed" && next.is_none_or(|next| next.process() != step.process());
            let is_done = step.end.as_ref().is_some_and(|end| end.len() == 3);
            step.name() == name && is_left(step.key()) && is_done && !is_gone
        };
        (0..self.0.len()).filter(is).collect()
    }

    /// Asserts that the trace has steps of this name, and is refused without any of them.
    pub(crate) fn needs_each(&self, name: &str) {
        let places = self.places(name);
        assert!(!places.is_empty(), "no step {name}:\n{}", self.text());
        for place in places {
            let mut changed = self.clone();
            changed.0.remove(place);
            refused(&changed.text(), &format!("{name} {place} is missing"));
        }
    }

    /// Asserts that the trace is refused if the first step of the second name that follows one of the first name, for the same
    /// key, comes before it.
    pub(crate) fn needs_in_order(&self, first: &str, second: &str) {
        let seconds = self.places(second);
        let pairs = self.places(first).into_iter().filter_map(|one| {
            let next = seconds.iter().find(|two| **two > one && self.0[**two].key() == self.0[one].key())?;
            Some((one, *next))
        });
        let (one, two) = pairs.min().unwrap_or_else(|| panic!("no {first} and {second}"));
        let mut changed = self.clone();
        let times = |step: &Step| (step.begin[2].clone(), step.end.as_ref().map(|end| end[2].clone()));
        let (early, late) = (times(&self.0[one]), times(&self.0[two]));
        changed.0[one].set(late);
        changed.0[two].set(early);
        refused(&changed.text(), &format!("{first} and {second} are exchanged"));
    }

    /// The trace in which the first step of this name is taken once more, at the end.
    pub(crate) fn twice(&self, name: &str) -> String {
        let mut changed = self.clone();
        let mut again = self.0[self.places(name)[0]].clone();
        let number = "again".to_owned();
        again.begin[1].clone_from(&number);
        // The clock of a trace counts nanoseconds since its begin.
        again.begin[2] = (u64::MAX / 2).to_string();
        if let Some(end) = &mut again.end {
            end[1] = number;
            end[2] = (u64::MAX / 2 + 1).to_string();
        }
        changed.0.push(again);
        changed.text()
    }
}

impl Step {
    fn name(&self) -> &str {
        &self.begin[4]
    }

    fn process(&self) -> &str {
        &self.begin[3]
    }

    fn key(&self) -> &str {
        &self.begin[7]
    }

    fn set(&mut self, (begin, end): (String, Option<String>)) {
        self.begin[2] = begin;
        if let (Some(record), Some(end)) = (&mut self.end, end) {
            record[2] = end;
        }
    }
}
