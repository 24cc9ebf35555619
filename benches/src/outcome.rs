//! The results of all sides, and the conclusions, as a table.

use std::fmt::{self, Display, Formatter};

use crate::framework::Framework;
use crate::plan::{self, Case, FROM_KAFKA, FROM_SQS, Line, Side, WARM_UP};
use crate::samples::{Samples, range};
use crate::tables::{Bytes, Prune};

pub(crate) struct Outcome {
    pub(crate) command: String,
    pub(crate) machine: String,
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

/// A number that must not exceed its limit, beside the ratios of the plan.
#[derive(Debug)]
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    pub(crate) most: f64,
    /// `None` if it was not measured.
    pub(crate) reached: Option<f64>,
}

/// The claims that a table must have for its size to be judged. In a small one, empty pages count.
const MANY: i64 = 1_000_000;

impl Outcome {
    /// Returns the result of a line; `None` if one of its cases was not measured.
    pub(crate) fn reached(&self, line: &Line) -> Option<f64> {
        match &line.to {
            Some(to) => self.samples.ratio(&line.case, to),
            None => self.samples.rate(&line.case),
        }
    }

    /// Returns the limits, with what was measured.
    pub(crate) fn limits(&self) -> [Limit; 5] {
        let log = self.samples.median(&Case::new(Side::Idem, 16), |sample| sample.wal);
        let nanos = self.framework.as_ref().and_then(Framework::judged);
        let requests = self.samples.median(&FROM_SQS[1], |sample| sample.requests.iter().sum());
        let limit = |what, most, reached| Limit { what, most, reached };
        [
            limit("bytes of log per message, single, 16 lanes", 370.0, log),
            limit("bytes of disk per claim", 130.0, disk(&self.bytes)),
            limit("percent that a worker loses beside prune", 5.0, self.prune.as_ref().map(Prune::loss)),
            limit("framework alone, ns per message with 16 in flight", 700.0, nanos),
            limit("requests to SQS for 1,000 messages", 320.0, requests),
        ]
    }

    /// Returns 0 if each measured line reaches its threshold and none is above its limit, else 1. If all sides were requested,
    /// an unmeasured line is below its threshold.
    pub(crate) fn verdict(&self) -> u8 {
        let above = self.limits().iter().any(|limit| limit.reached.is_some_and(|reached| reached > limit.most));
        let is_below = |line: Line| self.reached(&line).map_or(self.whole, |reached| reached < line.least);
        u8::from(above || plan::lines(self.rows).into_iter().any(is_below))
    }

    fn case(&self, f: &mut Formatter<'_>, case: &Case) -> fmt::Result {
        let Some(rate) = self.samples.rate(case) else { return Ok(()) };
        let (low, high) = range(self.samples.of(case).iter().map(|sample| sample.rate));
        let client = self.samples.median(case, |sample| sample.client).unwrap_or(f64::NAN);
        let log = self.samples.median(case, |sample| sample.wal).unwrap_or(f64::NAN);
        let (range, micros) = (format!("{low:.0} to {high:.0}"), format!("{:.1}", 1e6 / rate));
        row(f, &case.label(), [whole(rate), range, micros, format!("{client:.1}"), whole(log)])
    }

    fn ratios(&self, f: &mut Formatter<'_>) -> fmt::Result {
        for line in plan::lines(self.rows) {
            let Some(reached) = self.reached(&line) else { continue };
            let least = if line.least == 0.0 { String::new() } else { line.least.to_string() };
            let below = if reached < line.least { "BELOW" } else { "" };
            let reached = if line.to.is_some() { format!("{reached:.2}") } else { whole(reached) };
            row(f, &line.what, [&least, &reached, below])?;
        }
        Ok(())
    }
}

/// Returns the bytes of a claim of the large table in which it has most.
fn disk(bytes: &[Bytes]) -> Option<f64> {
    bytes.iter().filter(|table| table.claims >= MANY).map(|table| table.total).reduce(f64::max)
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let build = if cfg!(debug_assertions) { "a debug build, which proves nothing" } else { "release build" };
        writeln!(f, "command     {} ({build})\n{}", self.command, self.machine)?;
        writeln!(f, "load        {} at the end\n", self.load_at_end)?;
        row(f, "median of the rounds", ["messages", "lowest to", "µs of a", "client", "log"])?;
        row(f, &format!("({})", self.rounds), ["a second", "highest", "message", "CPU µs", "bytes"])?;
        for case in plan::cases() {
            self.case(f, &case)?;
        }
        if plan::cases().iter().any(|case| case.broker().is_some() && self.samples.rate(case).is_some()) {
            writeln!(
                f,
                "from a broker: behind the first {WARM_UP} messages; from Kafka at least {FROM_KAFKA}, and its client has \
                 about a thousand of each partition when the clock starts"
            )?;
        }
        for case in FROM_SQS {
            let median = |action: usize| self.samples.median(&case, |sample| sample.requests[action]);
            let [Some(receives), Some(deletes), Some(changes), Some(others)] = [0, 1, 2, 3].map(median) else {
                continue;
            };
            writeln!(
                f,
                "{}: for 1,000 messages {receives:.1} receives, {deletes:.1} deletes, {changes:.1} changes of visibility, \
                 {others:.1} other requests; the server is ElasticMQ, in a JVM on this machine",
                case.label()
            )?;
        }
        f.write_str("\n")?;
        row(f, "bytes of a claim on the disk", ["claims", "with indexes", "table", "key index"])?;
        for Bytes { claims, total, heap, primary_key } in &self.bytes {
            row(f, "", [*claims as f64, *total, *heap, *primary_key].map(whole))?;
        }
        if let Some(prune) = &self.prune {
            writeln!(f, "\n{prune}")?;
        }
        if let Some(framework) = &self.framework {
            writeln!(f, "\n{framework}")?;
        }
        f.write_str("\n")?;
        row(f, "must reach, as medians of the rounds' ratios", ["at least", "reached"])?;
        self.ratios(f)?;
        f.write_str("\n")?;
        row(f, "must not exceed", ["at most", "reached"])?;
        for limit in self.limits() {
            let Some(reached) = limit.reached else { continue };
            let above = if reached > limit.most { "ABOVE" } else { "" };
            let (most, reached) = (limit.most.to_string(), format!("{reached:.1}"));
            row(f, limit.what, [&most, &reached, above])?;
        }
        for missing in &self.missing {
            writeln!(f, "not measured: {missing}")?;
        }
        f.write_str(match self.verdict() {
            0 => "\npassed: each line that was measured is reached\n",
            _ => "\nFAILED: a line is not reached, or a limit is exceeded\n",
        })
    }
}

/// Writes a label and its cells. The second cell is wider, because it may contain a range.
fn row<C: Display, const N: usize>(f: &mut Formatter<'_>, label: &str, cells: [C; N]) -> fmt::Result {
    write!(f, "{label:56}")?;
    for (at, cell) in cells.into_iter().enumerate() {
        let width = if at == 1 { 20 } else { 11 };
        // Aligned as text, whatever the type.
        write!(f, "{:>width$}", cell.to_string())?;
    }
    f.write_str("\n")
}

fn whole(number: f64) -> String {
    format!("{number:.0}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_claim_of_a_large_table_is_judged() {
        let table = |claims, total| Bytes { claims, total, heap: 0.0, primary_key: 0.0 };
        assert_eq!(disk(&[table(100, 400.0), table(2_000_000, 128.0), table(MANY, 131.5)]), Some(131.5));
        assert_eq!(disk(&[table(100, 400.0)]), None);
    }
}
