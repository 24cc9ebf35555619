//! The rates and percentiles of all sides, and their ratios. None has a threshold.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use super::pace::Sample;
use super::sides::{CONCURRENCY, Side};
use super::staged::SIZE;
use crate::case::Broker;
use crate::machine::{Machine, load};
use crate::options::Relayed;
use crate::samples::median;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    machine: Machine,
    messages: usize,
    rate: f64,
    seconds: f64,
    lines: Vec<Line>,
    /// The brokers that were asked for and could not be measured, and why.
    missing: Vec<String>,
}

/// The samples of one broker, by round.
#[derive(Debug, Serialize)]
pub(super) struct Line {
    #[serde(serialize_with = "name")]
    pub(super) broker: Broker,
    /// Messages per second of each side.
    pub(super) rates: [Vec<f64>; 4],
    pub(super) relay: Vec<Sample>,
    pub(super) bare: Vec<Sample>,
}

fn name<S: serde::Serializer>(broker: &Broker, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(broker)
}

impl Line {
    pub(super) fn new(broker: Broker) -> Self {
        Self { broker, rates: Default::default(), relay: Vec::new(), bare: Vec::new() }
    }

    /// Returns the median of the rounds' ratios: both sides of one ratio ran within the same round.
    fn ratio(&self, side: Side, to: Side) -> f64 {
        let (side, to) = (&self.rates[side as usize], &self.rates[to as usize]);
        median(side.iter().zip(to).map(|(side, to)| side / to).collect())
    }
}

impl Report {
    pub(super) fn new(machine: Machine, options: &Relayed, lines: Vec<Line>, missing: Vec<String>) -> Self {
        let (messages, pace) = (options.messages, &options.pace);
        Self { machine, messages, rate: pace.rate, seconds: pace.seconds, lines, missing }
    }

    /// Writes `target/bench/relay.json`.
    pub(crate) fn save(&self) -> Result<()> {
        let file = crate::report::directory()?.join("relay.json");
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(&file, format!("{json}\n")).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// The label of each side.
const LABELS: [(Side, &str); 4] = [
    (Side::Relay, "relay"),
    (Side::Keyed, "relay, messages with keys"),
    (Side::Open, "relay, beside an open transaction"),
    (Side::Bare, "loop that publishes from memory"),
];

const RATIOS: [(Side, Side, &str); 3] = [
    (Side::Relay, Side::Bare, "relay / loop"),
    (Side::Keyed, Side::Bare, "relay, messages with keys / loop"),
    (Side::Open, Side::Relay, "relay, beside an open transaction / without"),
];

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if cfg!(debug_assertions) { "a debug build, which proves nothing" } else { "release build" };
        let rounds = self.lines.first().map_or(0, |line| line.bare.len());
        writeln!(f, "command     cargo xtask bench relay ({build})\n{}", self.machine)?;
        writeln!(f, "load        {} at the end", load())?;
        writeln!(
            f,
            "\n{} messages of {SIZE} bytes, {CONCURRENCY} unconfirmed at once; {} messages per second for {} s, from the answer\n\
             of COMMIT to the confirm, and from just before a message is published; medians of {rounds} rounds, and of the\n\
             rounds' ratios.",
            self.messages, self.rate, self.seconds
        )?;
        for line in &self.lines {
            writeln!(f, "\n{:52} {:>11}", line.broker.to_string(), "a second")?;
            for (side, label) in LABELS {
                writeln!(f, "{label:52} {:>11.0}", median(line.rates[side as usize].clone()))?;
            }
            for (side, to, label) in RATIOS {
                writeln!(f, "{label:52} {:>11.2}", line.ratio(side, to))?;
            }
            writeln!(f, "{:52} {:>11} {:>11} {:>11}", "", "p50", "p99", "a second")?;
            for (label, samples) in [("commit to confirm", &line.relay), ("publish to confirm, by hand", &line.bare)] {
                let median = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
                let (p50, p99, rate) = (median(|s| s.p50), median(|s| s.p99), median(|s| s.rate));
                writeln!(f, "{label:52} {p50:>8.2} ms {p99:>8.2} ms {rate:>11.0}")?;
            }
        }
        self.missing.iter().try_for_each(|missing| writeln!(f, "not measured: {missing}"))
    }
}
