//! The results of all sides, and the conclusions. `table` prints them.

use crate::case::{Case, Side};
use crate::framework::Framework;
use crate::machine::Machine;
use crate::plan::{self, Line};
use crate::prune::Prune;
use crate::samples::Samples;
use crate::tables::Bytes;

pub(crate) struct Outcome {
    pub(crate) command: String,
    pub(crate) machine: Machine,
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
    pub(crate) fn limits(&self) -> [Limit; 4] {
        let log = self.samples.median(&Case::new(Side::Idem, 16), |sample| sample.wal);
        let nanos = self.framework.as_ref().and_then(Framework::judged);
        let limit = |what, most, reached| Limit { what, most, reached };
        [
            limit("bytes of log per message, single, 16 lanes", 370.0, log),
            limit("bytes of disk per claim", 130.0, disk(&self.bytes)),
            limit("percent that a worker loses beside prune", 5.0, self.prune.as_ref().map(Prune::loss)),
            limit("framework alone, ns per message with 16 in flight", 700.0, nanos),
        ]
    }

    /// Returns 0 if each measured line reaches its threshold and none is above its limit, else 1. If all sides were requested,
    /// an unmeasured line is below its threshold.
    pub(crate) fn verdict(&self) -> u8 {
        let above = self.limits().iter().any(|limit| limit.reached.is_some_and(|reached| reached > limit.most));
        let is_below = |line: Line| self.reached(&line).map_or(self.whole, |reached| reached < line.least);
        u8::from(above || plan::lines(self.rows).into_iter().any(is_below))
    }
}

/// Returns the bytes of a claim of the large table in which it has most.
fn disk(bytes: &[Bytes]) -> Option<f64> {
    bytes.iter().filter(|table| table.claims >= MANY).map(|table| table.total).reduce(f64::max)
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
