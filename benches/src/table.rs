//! The outcome as a table.

use std::fmt::{self, Display, Formatter};

use crate::case::{Case, FROM_KAFKA, WARM_UP};
use crate::outcome::Outcome;
use crate::plan;
use crate::samples::range;
use crate::tables::Bytes;

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
        if self.samples.cases().any(|case| case.broker().is_some()) {
            writeln!(
                f,
                "idem from a broker: behind the first {WARM_UP} messages; from Kafka at least {FROM_KAFKA}, and its client has \
                 about a thousand of each partition when the clock starts"
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

impl Outcome {
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
