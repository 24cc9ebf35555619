//! The numbers that must not exceed a limit, beside the ratios of the plan.

use serde::Serialize;

use crate::case::{Case, Side};
use crate::framework::Framework;
use crate::prune::Prune;
use crate::samples::Samples;
use crate::tables::Bytes;

/// A number and its limit.
#[derive(Debug, Serialize)]
pub(crate) struct Limit {
    pub(crate) what: &'static str,
    pub(crate) most: f64,
    /// `None` if it was not measured.
    pub(crate) reached: Option<f64>,
}

/// The claims that a table must have for its size to be judged. In a small one, empty pages count.
const MANY: i64 = 1_000_000;

/// The number of messages in flight whose processor time is judged.
const IN_FLIGHT: usize = 16;

/// Returns all limits.
pub(crate) fn limits(
    samples: &Samples,
    bytes: &[Bytes],
    prune: Option<&Prune>,
    framework: Option<&Framework>,
) -> Vec<Limit> {
    let log = samples.median(&Case::new(Side::Idem, 16), |sample| sample.wal);
    let disk = bytes.iter().filter(|table| table.claims >= MANY).map(|table| table.total).reduce(f64::max);
    let nanos = |framework: &Framework| {
        let judged = framework.nanos.iter().find(|(in_flight, _)| *in_flight == IN_FLIGHT);
        judged.map(|(_, nanos)| *nanos)
    };
    let limit = |what, most, reached| Limit { what, most, reached };
    vec![
        limit("bytes of log per message, single, 16 lanes", 370.0, log),
        limit("bytes of disk per claim", 130.0, disk),
        limit("percent that a worker loses beside prune", 5.0, prune.map(Prune::loss)),
        limit("framework alone, ns per message with 16 in flight", 700.0, framework.and_then(nanos)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_claim_of_a_large_table_is_judged() {
        let table = |claims, total| Bytes { claims, total, heap: 0.0, primary_key: 0.0 };
        let disk = |bytes: &[Bytes]| limits(&Samples::default(), bytes, None, None)[1].reached;
        assert_eq!(disk(&[table(100, 400.0), table(2_000_000, 128.0), table(MANY, 131.5)]), Some(131.5));
        assert_eq!(disk(&[table(100, 400.0)]), None);
    }
}
