//! What is measured each minute.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use sqlx::{AssertSqlSafe, PgConnection};
use tokio::time::{Instant, Interval};

use super::worker::{Process, SCHEMA};
use crate::samples::median;

/// The time between two looks at the process.
pub(crate) const LOOK: Duration = Duration::from_secs(5);

const LOOKS: usize = 12;

/// One minute of a soak. Memory is the median of its looks; connections and tables are those of its end.
#[derive(Debug, Clone, Default)]
pub(crate) struct Minute {
    /// All messages so far.
    pub(crate) processed: u64,
    /// Messages per second, from the third look to the last.
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
        let (mut memory, mut looks) = (Vec::new(), Vec::new());
        for _ in 0..LOOKS {
            ticks.tick().await;
            looks.push((Instant::now(), worker.processed()));
            memory.push(worker.memory()?);
        }
        let ((began, first), (ended, processed)) = (looks[2], looks[LOOKS - 1]);
        let rate = processed.saturating_sub(first) as f64 / ended.duration_since(began).as_secs_f64();
        // One for each connection but this one, whoever has made it: the server has no other users.
        let text = "SELECT count(*)::float8 FROM pg_stat_activity
                    WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()";
        let connections = sqlx::query_scalar(text).fetch_one(&mut *conn).await?;
        let (claims, inbox) =
            (Table::look(conn, "processed_messages").await?, Table::look(conn, "inbox_messages").await?);
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
    async fn look(conn: &mut PgConnection, name: &str) -> Result<Self> {
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
