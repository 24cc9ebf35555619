//! What came out, what follows from it, and its file. `table` prints it.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::case::Case;
use crate::framework::Framework;
use crate::machine::Machine;
use crate::plan::{self, Line};
use crate::prune::Prune;
use crate::samples::Samples;
use crate::tables::Bytes;

pub(crate) struct Outcome {
    pub(crate) command: String,
    pub(crate) machine: Machine,
    pub(crate) peers: Vec<String>,
    pub(crate) rounds: usize,
    pub(crate) samples: Samples,
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) prune: Option<Prune>,
    pub(crate) framework: Option<Framework>,
    /// What could not be measured, and why.
    pub(crate) missing: Vec<String>,
}

impl Outcome {
    /// What a line came to; `None` where one of its cases was not measured.
    pub(crate) fn reached(&self, line: &Line) -> Option<f64> {
        match &line.to {
            Some(to) => self.samples.ratio(&line.case, to),
            None => self.samples.rate(&line.case),
        }
    }

    fn below(&self, lines: &[Line]) -> bool {
        lines.iter().any(|line| self.reached(line).is_some_and(|reached| reached < line.least))
    }

    /// 0: each line that was measured is reached. 1: one is not. 2: the baseline is not credible, and nothing follows.
    pub(crate) fn verdict(&self) -> u8 {
        match (self.below(&plan::credible()), self.below(&plan::lines(&self.peers))) {
            (true, _) => 2,
            (false, below) => u8::from(below),
        }
    }

    /// The cases with their rates, for the plot.
    pub(crate) fn bars(&self) -> Vec<(String, f64)> {
        let rate = |case: &Case| Some((case.label(&self.peers), self.samples.rate(case)?));
        plan::cases(self.peers.len()).iter().filter_map(rate).collect()
    }

    /// Writes `target/bench/bench.json`.
    pub(crate) fn save(&self) -> Result<()> {
        let file = crate::report::directory()?.join("bench.json");
        let cases: Vec<Value> = self
            .samples
            .iter()
            .map(|(case, samples)| json!({ "case": case.label(&self.peers), "samples": samples }))
            .collect();
        let lines = |lines: Vec<Line>| -> Vec<Value> {
            let line = |line: &Line| json!({ "what": line.what, "least": line.least, "reached": self.reached(line) });
            lines.iter().map(line).collect()
        };
        let json = json!({
            "bench": "all", "command": self.command, "machine": self.machine, "rounds": self.rounds, "cases": cases,
            "must_reach": lines(plan::lines(&self.peers)), "credible": lines(plan::credible()),
            "others": lines(plan::others()), "bytes": self.bytes, "prune": self.prune, "framework": self.framework,
            "missing": self.missing, "exit_code": self.verdict(),
        });
        std::fs::write(&file, format!("{json:#}\n")).with_context(|| format!("cannot write {}", file.display()))
    }
}
