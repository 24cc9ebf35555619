//! The machine of the measurement, and the server's settings.

use std::fmt;
use std::time::Duration;

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use sqlx::PgConnection;

/// The settings that determine the durability and the cost of a commit.
const SETTINGS: &str = "fsync synchronous_commit full_page_writes wal_level wal_sync_method wal_compression \
    commit_delay shared_buffers max_wal_size checkpoint_timeout autovacuum max_connections";

/// The machine of the measurement.
#[derive(Debug, Default)]
pub(crate) struct Machine {
    date: String,
    cores: usize,
    model: String,
    load_at_start: String,
    postgresql: String,
    settings: Vec<(String, String)>,
}

/// Returns the load average of the last minute.
pub(crate) fn load() -> String {
    std::fs::read_to_string("/proc/loadavg").unwrap_or_default().split(' ').next().unwrap_or_default().to_owned()
}

/// Returns the CPU time, in user and kernel mode, that this process or its ended children have used so far.
pub(crate) fn cpu(children: bool) -> Result<Duration> {
    used(if children { UsageWho::RUSAGE_CHILDREN } else { UsageWho::RUSAGE_SELF })
}

/// Returns the CPU time that these have used so far.
pub(crate) fn used(who: UsageWho) -> Result<Duration> {
    let usage = getrusage(who)?;
    let micros = |time: TimeVal| Duration::from_micros(u64::try_from(time.num_microseconds()).unwrap_or(0));
    Ok(micros(usage.user_time()) + micros(usage.system_time()))
}

impl Machine {
    pub(crate) async fn look(conn: &mut PgConnection) -> Result<Self> {
        let asked = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI \"UTC\"'),
            current_setting('server_version')";
        let (date, postgresql) = sqlx::query_as(asked).fetch_one(&mut *conn).await?;
        let asked = "SELECT name, current_setting(name) FROM unnest(string_to_array($1, ' ')) AS name";
        let settings = sqlx::query_as(asked).bind(SETTINGS).fetch_all(&mut *conn).await?;
        let read = |file: &str| std::fs::read_to_string(file).unwrap_or_default();
        let model = read("/proc/cpuinfo")
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1).map(str::to_owned));
        Ok(Self {
            date,
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            model: model.unwrap_or_else(|| "unknown processor".to_owned()),
            load_at_start: load(),
            postgresql,
            settings,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, cores, model, load_at_start, postgresql, settings } = self;
        writeln!(f, "date        {date}")?;
        writeln!(f, "machine     {cores} cores, {model}, load {load_at_start} at the start; the server is on it too")?;
        write!(f, "PostgreSQL  {postgresql}")?;
        for (at, line) in settings.chunks(6).enumerate() {
            let line: Vec<_> = line.iter().map(|(name, value)| format!("{name} {value}")).collect();
            write!(f, "{}{}", if at == 0 { ", " } else { ",\n            " }, line.join(", "))?;
        }
        Ok(())
    }
}
