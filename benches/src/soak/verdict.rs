//! What is measured in each minute of a soak, and what that shows: what grew after the first ones, whatever single minutes do, and
//! what became of the messages.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::{Instant, Interval};

use super::worker::{Process, SCHEMA};
use crate::samples::median;

/// The time between two samples of the process.
pub(crate) const SAMPLE_INTERVAL: Duration = Duration::from_secs(5);

const SAMPLES: usize = 12;

/// One minute of a soak. Memory is the median of its samples; connections and tables are those of its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Minute {
    /// All messages so far.
    pub(crate) processed: u64,
    /// Messages per second, from the third sample to the last.
    pub(crate) rate: f64,
    /// Megabytes that the process has allocated.
    pub(crate) memory: f64,
    pub(crate) connections: f64,
    pub(crate) claims: Table,
    pub(crate) inbox: Table,
}

/// A table with its indexes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Table {
    /// Megabytes.
    pub(crate) size: f64,
    pub(crate) live: f64,
    pub(crate) dead: f64,
}

impl Minute {
    /// Measures the next minute.
    pub(crate) async fn measure(ticks: &mut Interval, worker: &Process, conn: &mut PgConnection) -> Result<Self> {
        let (mut memory, mut samples) = (Vec::new(), Vec::new());
        for _ in 0..SAMPLES {
            ticks.tick().await;
            samples.push((Instant::now(), worker.processed()));
            memory.push(worker.memory()?);
        }
        let ((began, first), (ended, processed)) = (samples[2], samples[SAMPLES - 1]);
        let rate = processed.saturating_sub(first) as f64 / ended.duration_since(began).as_secs_f64();
        // One for each connection but this one, whoever has made it: the server has no other users.
        let text = "SELECT count(*)::float8 FROM pg_stat_activity
                    WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()";
        let connections = sqlx::query_scalar(text).fetch_one(&mut *conn).await?;
        let (claims, inbox) =
            (Table::read(conn, "processed_messages").await?, Table::read(conn, "inbox_messages").await?);
        Ok(Self { processed, rate, memory: median(memory), connections, claims, inbox })
    }

    /// Returns the heading of the lines.
    pub(crate) fn heading() -> &'static str {
        "Memory is what the process has allocated (RssAnon), database the number of its connections to PostgreSQL. Tables are\n\
         measured at the end of the minute, with their indexes.\n\n\
         minute processed   per s  memory MB database  claims MB      live      dead  inbox MB     live     dead"
    }
}

impl Table {
    async fn read(conn: &mut PgConnection, name: &str) -> Result<Self> {
        let table = format!("{SCHEMA}.{name}");
        let text = format!(
            "SELECT pg_total_relation_size('{table}') / 1e6::float8, count(*)::float8,
                    pg_stat_get_dead_tuples('{table}'::regclass)::float8
             FROM {table}"
        );
        let (size, live, dead) = sqlx::query_as(AssertSqlSafe(text)).fetch_one(conn).await?;
        Ok(Self { size, live, dead })
    }
}

impl fmt::Display for Minute {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { processed, rate, memory, connections, claims, inbox } = self;
        write!(f, "{processed:>9} {rate:>7.0} {memory:>10.2} {connections:>8} ")?;
        write!(f, "{:>10.2} {:>9} {:>9} ", claims.size, claims.live, claims.dead)?;
        write!(f, "{:>9.3} {:>8} {:>8}", inbox.size, inbox.live, inbox.dead)
    }
}

/// The minutes that are not judged: the worker's caches fill, and the claims grow up to their retention.
const SETTLE: usize = 10;

/// The number of judged minutes without which nothing follows.
const ENOUGH: usize = 10;

/// Megabytes.
const MEMORY: f64 = 1.0;

/// What counts as no growth of a table, as a part of its size and in megabytes: a table is extended and truncated by
/// some pages at a time, and vacuumed once a minute.
const NOISE: (f64, f64) = (0.05, 0.1);

/// The results of a run.
pub(crate) struct Verdict {
    lines: Vec<Line>,
    /// The first judged minute.
    from: usize,
    judged: usize,
}

/// A number that must not exceed its limit.
struct Line {
    what: &'static str,
    value: f64,
    limit: f64,
}

impl Verdict {
    /// Judges the minutes of a run. `lost` and `doubled` are numbers of messages.
    pub(crate) fn new(minutes: &[Minute], lost: i64, doubled: i64) -> Self {
        // A run that is too short shows only that everything works. Its first minute measures the load.
        let settle = if minutes.len() > SETTLE { SETTLE } else { minutes.len().min(1) };
        let judged = &minutes[settle..];
        let grown = |of: fn(&Minute) -> f64| growth(&judged.iter().map(of).collect::<Vec<_>>());
        let tables = |of: fn(&Minute) -> Table| judged.iter().map(of).collect::<Vec<_>>();
        let (claims, inbox) = (tables(|minute| minute.claims), tables(|minute| minute.inbox));
        let line = |what, value, limit| Line { what, value, limit };
        let lines = vec![
            line("growth of the worker's memory (RssAnon), MB", grown(|minute| minute.memory), MEMORY),
            // Half a connection, because the growth is an estimate.
            line("growth of connections to PostgreSQL", grown(|minute| minute.connections), 0.5),
            line("bloat of the claims: growth beyond that of live claims, MB", bloat(&claims), noise(&claims)),
            line("bloat of the inbox: growth, MB", growth(&sizes(&inbox)), noise(&inbox)),
            line("lost messages", lost as f64, 0.0),
            line("messages with more than one effect", doubled as f64, 0.0),
        ];
        Self { lines, from: settle + 1, judged: judged.len() }
    }

    /// Returns 0 if nothing exceeds its limit, 1 if something does, 2 if the run was too short to tell.
    pub(crate) fn code(&self) -> u8 {
        match (self.lines.iter().all(Line::is_reached), self.is_enough()) {
            (_, false) => 2,
            (reached, true) => u8::from(!reached),
        }
    }

    fn is_enough(&self) -> bool {
        self.judged >= ENOUGH
    }
}

impl Line {
    fn is_reached(&self) -> bool {
        self.value <= self.limit
    }
}

fn sizes(tables: &[Table]) -> Vec<f64> {
    tables.iter().map(|table| table.size).collect()
}

/// Returns the growth of a table beyond that of its live rows, which take as much space as usual.
fn bloat(tables: &[Table]) -> f64 {
    let each = median(tables.iter().map(|table| table.size / table.live.max(1.0)).collect());
    growth(&sizes(tables)) - growth(&tables.iter().map(|table| table.live * each).collect::<Vec<_>>())
}

fn noise(tables: &[Table]) -> f64 {
    NOISE.1.max(NOISE.0 * median(sizes(tables)))
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let last = self.from + self.judged.saturating_sub(1);
        writeln!(
            f,
            "\nFrom minute {} to minute {last}; growth is the median of the slopes between all pairs of",
            self.from
        )?;
        writeln!(f, "minutes, times their number, so that single minutes do not count.\n")?;
        for line in &self.lines {
            let verdict = if line.is_reached() { "reached" } else { "missed" };
            let limit = format!("at most {}", number(line.limit));
            writeln!(f, "{:60} {:>9} {limit:>16}  {verdict}", line.what, number(line.value))?;
        }
        match self.code() {
            0 => writeln!(f, "\nAll targets are reached."),
            1 => writeln!(f, "\nFAILED: a target is missed."),
            _ => writeln!(
                f,
                "\nThis run proves nothing: only minutes after the first {SETTLE} count, and at least {ENOUGH} of them \
                 are needed."
            ),
        }
    }
}

/// Returns a number with up to two decimals.
fn number(value: f64) -> String {
    // Without the sign of a negative zero.
    let rounded = (value * 100.0).round() / 100.0 + 0.0;
    format!("{rounded}")
}

/// Returns the growth from the first value to the last by the Theil-Sen estimator, which is the median of the slopes
/// between all pairs of values: up to 29 % of them may be anything (Sen 1968). Zero for fewer than two values.
pub(crate) fn growth(values: &[f64]) -> f64 {
    let mut slopes = Vec::new();
    for (at, value) in values.iter().enumerate() {
        for (distance, later) in values[at + 1..].iter().enumerate() {
            slopes.push((later - value) / (distance + 1) as f64);
        }
    }
    if slopes.is_empty() { 0.0 } else { median(slopes) * (values.len() - 1) as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn minutes(count: usize, minute: impl Fn(f64) -> Minute) -> Vec<Minute> {
        (0..count).map(|number| minute(number as f64)).collect()
    }

    fn steady(_: f64) -> Minute {
        let claims = Table { size: 50.0, live: 300_000.0, dead: 0.0 };
        Minute { memory: 20.0, connections: 20.0, claims, ..Minute::default() }
    }

    fn code(minute: impl Fn(f64) -> Minute) -> u8 {
        Verdict::new(&minutes(60, minute), 0, 0).code()
    }

    #[test]
    fn each_kind_of_growth_is_a_miss() {
        assert_eq!(code(steady), 0);
        assert_eq!(code(|at| Minute { memory: 20.0 + at * 0.03, ..steady(at) }), 1);
        assert_eq!(code(|at| Minute { connections: 20.0 + at * 0.1, ..steady(at) }), 1);
        assert_eq!(code(|at| Minute { inbox: Table { size: at * 0.1, ..Table::default() }, ..steady(at) }), 1);
        assert_eq!(code(|at| Minute { claims: Table { size: 50.0 + at, ..steady(at).claims }, ..steady(at) }), 1);
    }

    #[test]
    fn claims_may_grow_with_their_number() {
        let claims = |at: f64| Table { size: 50.0 + at, live: (50.0 + at) * 6000.0, dead: 0.0 };
        assert_eq!(code(|at| Minute { claims: claims(at), ..steady(at) }), 0);
    }

    #[test]
    fn a_lost_and_a_doubled_message_are_misses() {
        assert_eq!(Verdict::new(&minutes(60, steady), 1, 0).code(), 1);
        assert_eq!(Verdict::new(&minutes(60, steady), 0, 1).code(), 1);
    }

    #[test]
    fn a_short_run_proves_nothing() {
        for count in [0, 1, 3, 10, 19] {
            let verdict = Verdict::new(&minutes(count, steady), 0, 0);
            assert_eq!(verdict.code(), 2);
            assert!(verdict.to_string().contains("proves nothing"));
        }
    }

    #[test]
    fn a_steady_growth_is_found_beside_noise_and_outliers() {
        let mut values: Vec<f64> =
            (0..50).map(|minute| f64::from(minute) * 0.1 + f64::from(minute % 3) * 0.05).collect();
        values[20] = 100.0;
        values[49] = 0.0;
        assert!((4.7..=5.1).contains(&growth(&values)), "{}", growth(&values));
    }

    #[test]
    fn noise_without_a_trend_is_not_growth() {
        let mut values = vec![5.0; 50];
        values[49] = 9.0;
        assert_eq!([growth(&values), growth(&[1.0]), growth(&[])], [0.0; 3]);
    }
}
