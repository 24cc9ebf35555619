//! The results, the conclusions, and their file. `table` prints them.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::framework::Framework;
use crate::limits::{Limit, limits};
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
    /// The claims in the large tables.
    pub(crate) rows: usize,
    /// Whether all sides were requested.
    pub(crate) whole: bool,
    pub(crate) load_at_end: String,
    pub(crate) samples: Samples,
    pub(crate) bytes: Vec<Bytes>,
    pub(crate) prune: Option<Prune>,
    pub(crate) framework: Option<Framework>,
    /// The measurements that failed, and the reasons.
    pub(crate) missing: Vec<String>,
}

impl Outcome {
    /// Returns the result of a line; `None` if one of its cases was not measured.
    pub(crate) fn reached(&self, line: &Line) -> Option<f64> {
        match &line.to {
            Some(to) => self.samples.ratio(&line.case, to),
            None => self.samples.rate(&line.case),
        }
    }

    /// Returns whether a line is below its threshold. If all sides were requested, an unmeasured line is below it.
    fn below(&self, lines: &[Line]) -> bool {
        lines.iter().any(|line| self.reached(line).map_or(self.whole, |reached| reached < line.least))
    }

    /// Returns the required thresholds.
    pub(crate) fn lines(&self) -> Vec<Line> {
        plan::lines(&self.peers, self.rows)
    }

    /// Returns the limits, with what was measured.
    pub(crate) fn limits(&self) -> Vec<Limit> {
        limits(&self.samples, &self.bytes, self.prune.as_ref(), self.framework.as_ref())
    }

    /// Returns 0 if each measured line reaches its threshold and none is above its limit, 1 if one does not, 2 if the
    /// baseline is not credible and nothing follows.
    pub(crate) fn verdict(&self) -> u8 {
        let above = self.limits().iter().any(|limit| limit.reached.is_some_and(|reached| reached > limit.most));
        match (self.below(&plan::credible()), self.below(&self.lines())) {
            (true, _) => 2,
            (false, below) => u8::from(below || above),
        }
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
            "bench": "all", "command": self.command, "machine": self.machine, "rounds": self.rounds, "load_at_end": self.load_at_end, "cases": cases,
            "must_reach": lines(self.lines()), "limits": self.limits(), "credible": lines(plan::credible()),
            "others": lines(plan::others(&self.peers)), "bytes": self.bytes, "prune": self.prune, "framework": self.framework,
            "missing": self.missing, "exit_code": self.verdict(),
        });
        std::fs::write(&file, format!("{json:#}\n")).with_context(|| format!("cannot write {}", file.display()))
    }
}
