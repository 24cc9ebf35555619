//! The rates and percentiles of all sides, their ratios, and the verdict.

use std::fmt;

use anyhow::{Context, Result};
use serde::Serialize;

use super::pace::Sample;
use super::sides::{CONCURRENCY, OTHERS, PART, Side};
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
    pub(super) rates: [Vec<f64>; Side::ALL.len()],
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

    /// Returns the ratios of this broker, each with its label and the lowest one that is allowed.
    fn ratios(&self) -> impl Iterator<Item = (f64, &'static str, f64)> {
        let broker = self.broker;
        RATIOS
            .into_iter()
            .filter(move |(side, to, ..)| side.is_on(broker) && to.is_on(broker))
            .map(move |(side, to, label, least)| (self.ratio(side, to), label, least))
    }

    /// Returns p50 and p99 from commit to confirm: medians of the rounds.
    fn percentiles(&self) -> [f64; 2] {
        let median = |of: fn(&Sample) -> f64| median(self.relay.iter().map(of).collect());
        [median(|sample| sample.p50), median(|sample| sample.p99)]
    }

    fn is_at_rate(&self, rate: f64) -> bool {
        self.relay.iter().chain(&self.bare).all(|sample| sample.rate >= REACHED * rate)
    }

    /// Returns whether each target is reached. NaN is a miss.
    fn is_reached(&self) -> bool {
        let ratios = self.ratios().all(|(ratio, _, least)| ratio >= least);
        ratios && self.percentiles().into_iter().zip(MILLIS).all(|(reached, most)| reached <= most)
    }

    /// Writes the rates, their ratios, and the percentiles at this rate.
    fn write(&self, f: &mut fmt::Formatter<'_>, rate: f64) -> fmt::Result {
        writeln!(f, "\n{:52} {:>11}", self.broker.to_string(), "a second")?;
        for (side, label) in LABELS.into_iter().filter(|(side, _)| side.is_on(self.broker)) {
            writeln!(f, "{label:52} {:>11.0}", median(self.rates[side as usize].clone()))?;
        }
        for (ratio, label, least) in self.ratios() {
            write!(f, "{label:52} {ratio:>11.2}")?;
            if least > 0.0 {
                write!(f, "  at least {least:.1}{}", mark(ratio >= least))?;
            }
            writeln!(f)?;
        }
        if !self.rates[Side::Peer as usize].is_empty() {
            writeln!(f, "{LEFT_OUT}")?;
        }
        writeln!(f, "{:52} {:>11} {:>11} {:>11}", "", "p50", "p99", "a second")?;
        for (label, samples) in [("commit to confirm", &self.relay), ("publish to confirm, by hand", &self.bare)] {
            let median = |of: fn(&Sample) -> f64| median(samples.iter().map(of).collect());
            let (p50, p99, rate) = (median(|s| s.p50), median(|s| s.p99), median(|s| s.rate));
            writeln!(f, "{label:52} {p50:>8.2} ms {p99:>8.2} ms {rate:>11.0}")?;
        }
        let [p50, p99] = self.percentiles();
        let marks = [p50 <= MILLIS[0], p99 <= MILLIS[1]].map(mark);
        let most = "commit to confirm, at most";
        writeln!(f, "{most:52} {:>8.2} ms{} {:>8.2} ms{}", MILLIS[0], marks[0], MILLIS[1], marks[1])?;
        if !self.is_at_rate(rate) {
            writeln!(f, "the rate was not reached: nothing follows")?;
        }
        Ok(())
    }
}

impl Report {
    pub(super) fn new(machine: Machine, options: &Relayed, lines: Vec<Line>, missing: Vec<String>) -> Self {
        let (messages, pace) = (options.messages, &options.pace);
        Self { machine, messages, rate: pace.rate, seconds: pace.seconds, lines, missing }
    }

    /// Returns 0 if each target is reached on each broker, 1 if one is not or a broker is missing, 2 if the messages were
    /// not committed or published at the rate, so that nothing follows.
    pub(crate) fn verdict(&self) -> u8 {
        if !self.lines.iter().all(|line| line.is_at_rate(self.rate)) {
            return 2;
        }
        let reached = self.lines.iter().all(Line::is_reached);
        u8::from(!reached || !self.missing.is_empty() || self.lines.is_empty())
    }

    /// Writes `target/bench/relay.json`.
    pub(crate) fn save(&self) -> Result<()> {
        let file = crate::report::directory()?.join("relay.json");
        let json = serde_json::to_string_pretty(self)?;
        std::fs::write(&file, format!("{json}\n")).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// The label of each side.
const LABELS: [(Side, &str); Side::ALL.len()] = [
    (Side::Relay, "relay"),
    (Side::Keyed, "relay, messages with keys"),
    (Side::Hot, "relay, all messages of one key"),
    (Side::Behind, "relay, behind other messages"),
    (Side::Open, "the same, beside an open transaction"),
    (Side::Bare, "loop that publishes from memory"),
    (Side::Peer, "backbone-outbox"),
];

/// The ratios, each with the lowest one that is allowed.
const RATIOS: [(Side, Side, &str, f64); 5] = [
    (Side::Relay, Side::Bare, "relay / loop", 0.8),
    (Side::Keyed, Side::Bare, "relay, messages with keys / loop", 0.0),
    (Side::Hot, Side::Keyed, "relay, all messages of one key / of many keys", 0.0),
    (Side::Open, Side::Behind, "relay, beside an open transaction / without", 0.8),
    (Side::Relay, Side::Peer, "relay / backbone-outbox", 3.0),
];

/// How backbone-outbox publishes, and the work that it does not do.
const LEFT_OUT: &str = "\
    backbone-outbox publishes one message at a time, and marks each in a transaction of its own.\n\
    It leaves out leases (two relays would each publish all messages), the order of a key behind a message that\n\
    failed, and the removal of what is published.";

/// The highest p50 and p99 from commit to confirm that are allowed, in milliseconds.
const MILLIS: [f64; 2] = [5.0, 50.0];

/// The part of the rate that must be reached, or nothing follows.
const REACHED: f64 = 0.95;

/// The end of a line whose target is missed.
fn mark(reached: bool) -> &'static str {
    if reached { "" } else { "  missed" }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if cfg!(debug_assertions) { "a debug build, which proves nothing" } else { "release build" };
        let rounds = self.lines.first().map_or(0, |line| line.bare.len());
        writeln!(f, "command     cargo xtask bench relay ({build})\n{}", self.machine)?;
        writeln!(f, "load        {} at the end", load())?;
        writeln!(
            f,
            "\n{} messages of {SIZE} bytes, {CONCURRENCY} unconfirmed at once; with one key, and for backbone-outbox,\n\
             a {PART}th of them. Behind {} others, which the relay deletes first, once while a transaction is open that\n\
             began before all were staged. Then {} messages per second for {} s, from the answer of COMMIT to the\n\
             confirm, and from just before a message is published, behind the first tenth. Medians of {rounds} rounds,\n\
             and of the rounds' ratios.",
            self.messages,
            OTHERS * self.messages,
            self.rate,
            self.seconds
        )?;
        self.lines.iter().try_for_each(|line| line.write(f, self.rate))?;
        self.missing.iter().try_for_each(|missing| writeln!(f, "not measured: {missing}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of one round with these rates of the relay, alone and beside an open transaction, and this p99; the loop
    /// has a rate of 100.
    fn report(relay: f64, open: f64, p99: f64, rate: f64) -> Report {
        let mut line = Line::new(Broker::Nats);
        let others = [(Side::Keyed, 2.0), (Side::Hot, 1.0), (Side::Behind, 80.0), (Side::Bare, 100.0)];
        for (side, rate) in others.into_iter().chain([(Side::Relay, relay), (Side::Open, open)]) {
            line.rates[side as usize].push(rate);
        }
        let sample = Sample { p50: 5.0, p99, rate };
        (line.relay, line.bare) = (vec![sample], vec![sample]);
        let machine = Machine::default();
        Report { machine, messages: 1, rate: 1000.0, seconds: 1.0, lines: vec![line], missing: Vec::new() }
    }

    #[test]
    fn each_target_is_judged() {
        assert_eq!(report(80.0, 64.0, 50.0, 1000.0).verdict(), 0);
        let missed = [(79.0, 64.0, 1.0), (80.0, 63.0, 1.0), (80.0, 64.0, 51.0)];
        for missed in missed.map(|(relay, open, p99)| report(relay, open, p99, 1000.0)) {
            assert_eq!(missed.verdict(), 1);
            assert!(missed.to_string().contains("missed"), "{missed}");
        }
        assert!(!report(80.0, 64.0, 50.0, 1000.0).to_string().contains("missed"));
    }

    #[test]
    fn backbone_outbox_is_judged_where_it_publishes() {
        // With RabbitMQ, and this rate of backbone-outbox if it was measured.
        let beside = |peer: Option<f64>| {
            let mut report = report(80.0, 64.0, 50.0, 1000.0);
            report.lines[0].broker = Broker::RabbitMq;
            report.lines[0].rates[Side::Peer as usize].extend(peer);
            report
        };
        assert_eq!(beside(Some(26.0)).verdict(), 0);
        assert!(beside(Some(26.0)).to_string().contains("leaves out leases"));
        assert_eq!(beside(Some(27.0)).verdict(), 1);
        assert_eq!(beside(None).verdict(), 1);
        assert!(beside(Some(26.0)).to_string().contains("relay / backbone-outbox"));
        assert!(!report(80.0, 64.0, 50.0, 1000.0).to_string().contains("relay / backbone-outbox"));
    }

    #[test]
    fn a_rate_that_was_not_reached_proves_nothing() {
        assert_eq!(report(100.0, 100.0, 1.0, 900.0).verdict(), 2);
    }

    #[test]
    fn a_broker_that_is_missing_is_a_miss() {
        let missing = vec!["Kafka: its address is not set".to_owned()];
        assert_eq!(Report { missing, ..report(100.0, 100.0, 1.0, 1000.0) }.verdict(), 1);
        assert_eq!(report(f64::NAN, 100.0, 1.0, 1000.0).verdict(), 1);
    }
}
