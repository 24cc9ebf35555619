//! The rates and percentiles of all sides, their ratios, and the verdict.

use std::fmt;

use super::pace::{RATE, Sample};
use super::sides::{CONCURRENCY, OTHERS, PART, SIZE, Side};
use crate::machine::load;
use crate::options::Relayed;
use crate::plan::Broker;
use crate::samples::median;

#[derive(Debug)]
pub(crate) struct Report {
    machine: String,
    messages: usize,
    deleted: usize,
    seconds: f64,
    lines: Vec<Line>,
}

/// The samples of one broker, by round.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) broker: Broker,
    /// Messages per second of each side.
    pub(super) rates: [Vec<f64>; Side::ALL.len()],
    /// From commit to confirm.
    pub(super) paced: Vec<Sample>,
}

/// The labels of the sides, in their order.
const LABELS: [&str; Side::ALL.len()] = [
    "relay",
    "relay, messages with keys",
    "relay, all messages of one key",
    "relay, behind other messages",
    "the same, beside open transactions",
    "loop that publishes from memory",
];

/// The ratios, each with the lowest one that is allowed.
const RATIOS: [(Side, Side, &str, f64); 4] = [
    (Side::Relay, Side::HandWritten, "relay / loop", 0.8),
    (Side::Keyed, Side::HandWritten, "relay, messages with keys / loop", 0.0),
    (Side::Hot, Side::Keyed, "relay, all messages of one key / of many keys", 0.0),
    (Side::Open, Side::Behind, "relay, beside open transactions / without", 0.8),
];

/// The highest p50 and p99 from commit to confirm that are allowed, in milliseconds.
const MILLIS: [f64; 2] = [5.0, 50.0];

/// The part of the rate that must be reached, or nothing follows.
const REACHED: f64 = 0.95;

impl Line {
    pub(super) fn new(broker: Broker) -> Self {
        Self { broker, rates: Default::default(), paced: Vec::new() }
    }

    /// Returns the median of the rounds' ratios: both sides of one ratio ran within the same round.
    fn ratio(&self, side: Side, to: Side) -> f64 {
        let (side, to) = (&self.rates[side as usize], &self.rates[to as usize]);
        median(side.iter().zip(to).map(|(side, to)| side / to).collect())
    }

    /// Returns p50 and p99 from commit to confirm: medians of the rounds.
    fn percentiles(&self) -> [f64; 2] {
        let median = |of: fn(&Sample) -> f64| median(self.paced.iter().map(of).collect());
        [median(|sample| sample.p50), median(|sample| sample.p99)]
    }

    fn is_at_rate(&self) -> bool {
        self.paced.iter().all(|sample| sample.rate >= REACHED * RATE)
    }

    /// Returns whether each target is reached. NaN is a miss.
    fn is_reached(&self) -> bool {
        let ratios = RATIOS.iter().all(|(side, to, _, least)| self.ratio(*side, *to) >= *least);
        ratios && self.percentiles().into_iter().zip(MILLIS).all(|(reached, most)| reached <= most)
    }

    /// Writes the rates, their ratios, and the percentiles.
    fn write(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n{:52} {:>11}", self.broker.to_string(), "a second")?;
        for (label, rates) in LABELS.iter().zip(&self.rates) {
            writeln!(f, "{label:52} {:>11.0}", median(rates.clone()))?;
        }
        for (side, to, label, least) in RATIOS {
            let ratio = self.ratio(side, to);
            let target =
                if least > 0.0 { format!("  at least {least:.1}{}", mark(ratio >= least)) } else { String::new() };
            writeln!(f, "{label:52} {ratio:>11.2}{target}")?;
        }
        for ((what, reached), most) in ["p50", "p99"].iter().zip(self.percentiles()).zip(MILLIS) {
            let label = format!("commit to confirm, {what}");
            writeln!(f, "{label:52} {reached:>8.2} ms  at most {most:.0}{}", mark(reached <= most))?;
        }
        if !self.is_at_rate() {
            writeln!(f, "the rate was not reached: nothing follows")?;
        }
        Ok(())
    }
}

/// The end of a line whose target is missed.
fn mark(reached: bool) -> &'static str {
    if reached { "" } else { "  missed" }
}

impl Report {
    pub(super) fn new(machine: String, options: &Relayed, lines: Vec<Line>) -> Self {
        Self { machine, messages: options.messages, deleted: options.deleted, seconds: options.seconds, lines }
    }

    /// Returns 0 if each target is reached on each broker, 1 if one is not, 2 if the messages were not committed at the rate,
    /// so that nothing follows.
    pub(crate) fn verdict(&self) -> u8 {
        if !self.lines.iter().all(Line::is_at_rate) {
            return 2;
        }
        u8::from(!self.lines.iter().all(Line::is_reached) || self.lines.is_empty())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let build = if cfg!(debug_assertions) { "a debug build, which proves nothing" } else { "release build" };
        let rounds = self.lines.first().map_or(0, |line| line.paced.len());
        writeln!(f, "command     cargo xtask bench relay ({build})\n{}", self.machine)?;
        writeln!(f, "load        {} at the end", load())?;
        writeln!(
            f,
            "\n{} messages of {SIZE} bytes, {CONCURRENCY} unconfirmed at once; with one key a {PART}th of them. Behind {}\n\
             others, which the relay deletes first; behind {} while transactions are open that began before all were staged:\n\
             one has written, one reads, one is prepared.\n\
             Then {RATE} messages per second for {} s, from the answer of COMMIT to the confirm, behind the first tenth.\n\
             Medians of {rounds} rounds, and of the rounds' ratios.",
            self.messages,
            OTHERS * self.messages,
            self.deleted,
            self.seconds
        )?;
        self.lines.iter().try_for_each(|line| line.write(f))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A report of one round with these rates of the relay, alone and beside open transactions, and this p99; the loop
    /// has a rate of 100.
    fn report(relay: f64, open: f64, p99: f64, rate: f64) -> Report {
        let mut line = Line::new(Broker::Nats);
        let others = [(Side::Keyed, 2.0), (Side::Hot, 1.0), (Side::Behind, 80.0), (Side::HandWritten, 100.0)];
        for (side, rate) in others.into_iter().chain([(Side::Relay, relay), (Side::Open, open)]) {
            line.rates[side as usize].push(rate);
        }
        let sample = Sample { p50: 5.0, p99, rate };
        line.paced = vec![sample];
        Report { machine: String::new(), messages: 1, deleted: 1, seconds: 1.0, lines: vec![line] }
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
    fn a_rate_that_was_not_reached_proves_nothing() {
        assert_eq!(report(100.0, 100.0, 1.0, 900.0).verdict(), 2);
    }

    #[test]
    fn a_side_that_was_not_measured_is_a_miss() {
        assert_eq!(report(f64::NAN, 100.0, 1.0, 1000.0).verdict(), 1);
    }
}
