//! What came out, as a table and as a file.

use std::fmt;

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
    pub(crate) framework: Framework,
    /// What could not be measured, and why.
    pub(crate) missing: Vec<String>,
}

impl Outcome {
    /// What a line came to; `None` where one of its cases was not measured.
    fn reached(&self, line: &Line) -> Option<f64> {
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

const LABEL: usize = 46;

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "command     {} (release build)\n{}\n", self.command, self.machine)?;
        writeln!(
            f,
            "{:LABEL$}{:>10}{:>20}{:>11}{:>11}{:>11}",
            "median of the rounds", "messages", "lowest to", "µs of", "client", "log"
        )?;
        writeln!(
            f,
            "{:LABEL$}{:>10}{:>20}{:>11}{:>11}{:>11}",
            format!("({})", self.rounds),
            "a second",
            "highest",
            "a message",
            "CPU µs",
            "bytes"
        )?;
        for case in plan::cases(self.peers.len()) {
            self.case(f, &case)?;
        }
        writeln!(
            f,
            "\nbytes of a claim on the disk{:>10}{:>11}{:>11}{:>11}{:>11}",
            "claims", "total", "table", "key index", "date index"
        )?;
        for Bytes { claims, total, heap, primary_key, dated } in &self.bytes {
            writeln!(f, "{:28}{claims:>10}{total:>11.0}{heap:>11.0}{primary_key:>11.0}{dated:>11.0}", "")?;
        }
        if let Some(prune) = &self.prune {
            writeln!(f, "\n{prune}")?;
        }
        writeln!(f, "\n{}", self.framework)?;
        writeln!(f, "\nmust reach, as medians of the rounds' ratios{:>14}{:>11}", "at least", "reached")?;
        self.lines(f, &plan::credible())?;
        self.lines(f, &plan::lines(&self.peers))?;
        writeln!(f, "\nother ratios")?;
        self.lines(f, &plan::others())?;
        for missing in &self.missing {
            writeln!(f, "not measured: {missing}")?;
        }
        f.write_str(match self.verdict() {
            0 => "\npassed: each line that was measured is reached\n",
            1 => "\nFAILED: a line is not reached\n",
            _ => "\nINVALID: B has less than 0.6 of pgbench, so that it is no baseline\n",
        })
    }
}

impl Outcome {
    fn case(&self, f: &mut fmt::Formatter<'_>, case: &Case) -> fmt::Result {
        let Some(rate) = self.samples.rate(case) else { return Ok(()) };
        let rates = self.samples.of(case).iter().map(|sample| sample.rate);
        let (low, high) = rates.fold((f64::MAX, 0.0_f64), |(low, high), rate| (low.min(rate), high.max(rate)));
        let client = self.samples.median(case, |sample| sample.client).unwrap_or(f64::NAN);
        let log = self.samples.median(case, |sample| sample.wal).unwrap_or(f64::NAN);
        let (label, range, micros) = (case.label(&self.peers), format!("{low:.0} to {high:.0}"), 1e6 / rate);
        writeln!(f, "{label:LABEL$}{rate:>10.0}{range:>20}{micros:>11.1}{client:>11.1}{log:>11.0}")
    }

    fn lines(&self, f: &mut fmt::Formatter<'_>, lines: &[Line]) -> fmt::Result {
        for line in lines {
            let Some(reached) = self.reached(line) else { continue };
            let Line { what, least, .. } = line;
            let text = if *least == 0.0 { String::new() } else { least.to_string() };
            let verdict = if reached < *least { "  BELOW" } else { "" };
            let reached = if line.to.is_some() { format!("{reached:.2}") } else { format!("{reached:.0}") };
            writeln!(f, "{what:44}{text:>14}{reached:>11}{verdict}")?;
        }
        Ok(())
    }
}
