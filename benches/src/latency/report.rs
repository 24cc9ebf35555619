//! The percentiles of both sides, their ratios, and the verdict.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use super::sides::{CONCURRENCY, Sample};
use crate::case::Broker;
use crate::machine::{Machine, load};
use crate::options::Pace;
use crate::samples::median;

/// The highest ratio of idem to the loop by hand that is allowed, for both percentiles.
const TARGET: f64 = 1.0;

/// The part of the rate that must be reached, or nothing follows.
const REACHED: f64 = 0.95;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) rate: f64,
    pub(crate) seconds: f64,
    pub(crate) lines: Vec<Line>,
    /// The brokers that were asked for and could not be measured, and why.
    pub(crate) missing: Vec<String>,
}

/// The samples of both sides from one broker, by round.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    #[serde(serialize_with = "name")]
    pub(crate) broker: Broker,
    pub(crate) idem: Vec<Sample>,
    pub(crate) by_hand: Vec<Sample>,
}

fn name<S: serde::Serializer>(broker: &Broker, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(broker)
}

impl Line {
    pub(crate) fn new(broker: Broker) -> Self {
        Self { broker, idem: Vec::new(), by_hand: Vec::new() }
    }

    /// Returns the median of the rounds' ratios: both sides of one ratio ran within the same round.
    fn ratio(&self, of: impl Fn(&Sample) -> f64) -> f64 {
        median(self.idem.iter().zip(&self.by_hand).map(|(idem, by_hand)| of(idem) / of(by_hand)).collect())
    }

    fn ratios(&self) -> [f64; 2] {
        [self.ratio(|sample| sample.p50), self.ratio(|sample| sample.p99)]
    }

    fn is_at_rate(&self, rate: f64) -> bool {
        self.idem.iter().chain(&self.by_hand).all(|sample| sample.rate >= REACHED * rate)
    }
}

impl Report {
    pub(crate) fn new(machine: Machine, pace: &Pace, lines: Vec<Line>, missing: Vec<String>) -> Self {
        Self { machine, rate: pace.rate, seconds: pace.seconds, lines, missing }
    }

    /// Returns 0 if each ratio reaches its target, 1 if one does not or is missing, 2 if the messages were not
    /// published at the rate, so that nothing follows.
    pub(crate) fn verdict(&self) -> u8 {
        if !self.lines.iter().all(|line| line.is_at_rate(self.rate)) {
            return 2;
        }
        // Not `any(above)`: NaN is a miss.
        let reached = self.lines.iter().flat_map(Line::ratios).all(|ratio| ratio <= TARGET);
        u8::from(!reached || !self.missing.is_empty() || self.lines.is_empty())
    }

    /// Writes `target/bench/latency.json`.
    pub(crate) fn save(&self) -> Result<()> {
        let file = crate::report::directory()?.join("latency.json");
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(&file, format!("{json}\n")).with_context(|| format!("cannot write {}", file.display()))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rounds = self.lines.first().map_or(0, |line| line.idem.len());
        writeln!(f, "command     cargo xtask bench latency (release build)\n{}", self.machine)?;
        writeln!(f, "load        {} at the end", load())?;
        writeln!(
            f,
            "\nFrom just before a message is published to the answer of COMMIT, before the ack, by the clock of this\n\
             process. {} messages per second for {} s per side and round, {CONCURRENCY} at once; medians of {rounds} rounds,\n\
             and of the rounds' ratios.\n",
            self.rate, self.seconds
        )?;
        writeln!(f, "{:44} {:>9} {:>9}", "", "p50", "p99")?;
        for line in &self.lines {
            for (side, samples) in [("idem", &line.idem), ("loop by hand", &line.by_hand)] {
                let median = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
                let (label, p50, p99) = (format!("{}, {side}", line.broker), median(|s| s.p50), median(|s| s.p99));
                writeln!(f, "{label:44} {p50:>6.2} ms {p99:>6.2} ms")?;
            }
            let [p50, p99] = line.ratios();
            let verdict = if !line.is_at_rate(self.rate) {
                "the rate was not reached: nothing follows"
            } else if p50 <= TARGET && p99 <= TARGET {
                "reached"
            } else {
                "missed"
            };
            let label = format!("{}, idem / loop by hand, at most {TARGET:.1}", line.broker);
            writeln!(f, "{label:44} {p50:>9.2} {p99:>9.2}  {verdict}")?;
        }
        self.missing.iter().try_for_each(|missing| writeln!(f, "not measured: {missing}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(idem: f64, rate: f64) -> Report {
        let sample = |p50| Sample { p50, p99: 5.0, rate };
        let line = Line { broker: Broker::Nats, idem: vec![sample(idem); 3], by_hand: vec![sample(2.0); 3] };
        Report { machine: Machine::default(), rate: 1000.0, seconds: 1.0, lines: vec![line], missing: Vec::new() }
    }

    #[test]
    fn a_higher_latency_is_a_miss() {
        assert_eq!([report(2.0, 1000.0).verdict(), report(2.1, 1000.0).verdict()], [0, 1]);
        assert!(report(2.1, 1000.0).to_string().contains("missed"));
    }

    #[test]
    fn a_rate_that_was_not_reached_proves_nothing() {
        assert_eq!(report(1.0, 900.0).verdict(), 2);
    }

    #[test]
    fn a_broker_that_is_missing_is_a_miss() {
        let missing = vec!["KAFKA_BROKERS is not set".to_owned()];
        assert_eq!(Report { missing, ..report(1.0, 1000.0) }.verdict(), 1);
    }
}
