//! Medians, ratios, the table, and the file.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::machine::Machine;
use crate::samples::median;
use anyhow::{Context, Result};
use serde::Serialize;

/// The required ratio of idem to the baseline, with a concurrency of 16.
const TARGET: f64 = 0.95;
/// The required ratio of the baseline to pgbench; below it, the baseline is not credible.
const CREDIBLE: f64 = 0.6;

/// The measured sides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Idem,
    Guarded,
    Session,
    Unguarded,
    Pgbench,
}

impl Side {
    pub(crate) const ALL: [Self; 5] = [Self::Idem, Self::Guarded, Self::Session, Self::Unguarded, Self::Pgbench];

    fn name(self) -> &'static str {
        match self {
            Self::Idem => "idem",
            Self::Guarded => "by hand",
            Self::Session => "by hand, settings made once per connection",
            Self::Unguarded => "by hand, without the guard",
            Self::Pgbench => "pgbench, the same with settings made once",
        }
    }
}

/// The results for one concurrency.
#[derive(Debug, Serialize)]
pub(crate) struct Column {
    in_flight: usize,
    messages_per_round: usize,
    /// Messages per second of each side, by round.
    rates: [Vec<f64>; 5],
    /// Microseconds of the client's CPU time per message.
    client_micros: [Vec<f64>; 5],
}

impl Column {
    pub(crate) fn new(in_flight: usize, messages_per_round: usize) -> Self {
        Self { in_flight, messages_per_round, rates: Default::default(), client_micros: Default::default() }
    }

    pub(crate) fn add(&mut self, side: Side, rate: f64, client: Duration) {
        self.rates[side as usize].push(rate);
        self.client_micros[side as usize].push(client.as_secs_f64() * 1e6);
    }

    fn of(&self, side: Side) -> &[f64] {
        &self.rates[side as usize]
    }

    /// Returns the median of the rounds' ratios: both sides of one ratio ran within the same few seconds.
    fn ratio(&self, side: Side, to: Side) -> f64 {
        median(self.of(side).iter().zip(self.of(to)).map(|(side, to)| side / to).collect())
    }
}

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) machine: Machine,
    pub(crate) columns: Vec<Column>,
}

impl Report {
    /// Returns 0 if idem is fast enough, 1 if it is not, 2 if the baseline is not credible and nothing follows.
    pub(crate) fn verdict(&self) -> u8 {
        let Some(many) = self.columns.last() else { return 2 };
        if !self.columns.iter().all(|column| column.ratio(Side::Guarded, Side::Pgbench) >= CREDIBLE) {
            return 2;
        }
        u8::from(many.ratio(Side::Idem, Side::Guarded) < TARGET)
    }

    fn rounds(&self) -> usize {
        self.columns.first().map_or(0, |column| column.of(Side::Idem).len())
    }

    /// Writes `target/bench/single.json`.
    pub(crate) fn save(&self) -> Result<()> {
        let sides = Side::ALL.map(Side::name);
        let json =
            serde_json::json!({ "bench": "single", "sides": sides, "report": self, "exit_code": self.verdict() });
        let file = directory()?.join("single.json");
        std::fs::write(&file, format!("{json:#}\n")).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Returns `target/bench` of this repository.
pub(crate) fn directory() -> Result<PathBuf> {
    let target = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../target/bench");
    std::fs::create_dir_all(&target).with_context(|| format!("cannot create {}", target.display()))?;
    Ok(target)
}

const LABEL: usize = 44;

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "command     cargo xtask bench single (release build)\n{}", self.machine)?;
        writeln!(
            f,
            "\nmessages a second, one INSERT in the handler: median of {} rounds (lowest to highest)",
            self.rounds()
        )?;
        write!(f, "{:LABEL$}", "")?;
        for column in &self.columns {
            write!(f, "{:>24}", format!("{} in flight", column.in_flight))?;
        }
        for side in Side::ALL {
            write!(f, "\n{:LABEL$}", side.name())?;
            for column in &self.columns {
                let rates = column.of(side);
                let (low, high) = rates.iter().fold((f64::MAX, 0.0_f64), |(l, h), r| (l.min(*r), h.max(*r)));
                write!(f, "{:>24}", format!("{:.0} ({low:.0} to {high:.0})", median(rates.to_vec())))?;
            }
        }
        writeln!(f, "\n\nprocessor time of the client for a message, in microseconds: median of the rounds")?;
        for side in Side::ALL {
            write!(f, "{:LABEL$}", side.name())?;
            for column in &self.columns {
                write!(f, "{:>24.0}", median(column.client_micros[side as usize].clone()))?;
            }
            writeln!(f)?;
        }
        writeln!(f, "\nratios: median of the rounds' ratios")?;
        for (side, to) in RATIOS {
            write!(f, "{:LABEL$}", format!("{} / {}", short(side), short(to)))?;
            for column in &self.columns {
                write!(f, "{:>24.2}", column.ratio(side, to))?;
            }
            writeln!(f)?;
        }
        f.write_str(match self.verdict() {
            0 => "\npassed: with 16 in flight idem has at least 0.95 of `by hand`\n",
            1 => "\nFAILED: with 16 in flight idem has less than 0.95 of `by hand`\n",
            _ => "\nINVALID: `by hand` has less than 0.6 of pgbench, so that it is no baseline\n",
        })
    }
}

const RATIOS: [(Side, Side); 4] = [
    (Side::Idem, Side::Guarded),
    (Side::Idem, Side::Session),
    (Side::Idem, Side::Unguarded),
    (Side::Guarded, Side::Pgbench),
];

fn short(side: Side) -> &'static str {
    match side {
        Side::Session => "by hand, settings made once",
        Side::Pgbench => "pgbench",
        side => side.name(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a report of one round with these rates of idem, the baseline and pgbench.
    fn report(idem: f64, by_hand: f64, pgbench: f64) -> Report {
        let mut column = Column::new(16, 1000);
        for (side, rate) in [(Side::Idem, idem), (Side::Guarded, by_hand), (Side::Pgbench, pgbench)] {
            column.add(side, rate, Duration::ZERO);
        }
        Report { machine: Machine::default(), columns: vec![column] }
    }

    #[test]
    fn idem_passes_with_nineteen_twentieths_of_the_baseline_and_not_with_less() {
        assert_eq!(report(95.0, 100.0, 100.0).verdict(), 0);
        assert_eq!(report(94.0, 100.0, 100.0).verdict(), 1);
    }

    #[test]
    fn a_baseline_far_below_pgbench_proves_nothing() {
        assert_eq!(report(100.0, 59.0, 100.0).verdict(), 2);
        assert_eq!(report(f64::NAN, f64::NAN, f64::NAN).verdict(), 2);
    }
}
