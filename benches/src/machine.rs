//! The machine of the measurement, and the server's settings.

use std::time::Duration;

use anyhow::Result;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeVal, TimeValLike};
use sqlx::PgConnection;

/// The settings that determine the durability and the cost of a commit.
const SETTINGS: &str = "fsync synchronous_commit full_page_writes wal_level wal_sync_method wal_compression \
    commit_delay shared_buffers max_wal_size checkpoint_timeout autovacuum max_connections";

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

/// Describes the machine of the measurement and the server.
pub(crate) async fn describe(conn: &mut PgConnection) -> Result<String> {
    let asked = "SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI \"UTC\"'),
        current_setting('server_version')";
    let (date, version): (String, String) = sqlx::query_as(asked).fetch_one(&mut *conn).await?;
    let asked = "SELECT name || ' ' || current_setting(name) FROM unnest(string_to_array($1, ' ')) AS name";
    let settings: Vec<String> = sqlx::query_scalar(asked).bind(SETTINGS).fetch_all(&mut *conn).await?;
    let settings: Vec<String> = settings.chunks(6).map(|line| line.join(", ")).collect();
    let processors = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split(": ").nth(1));
    Ok(format!(
        "date        {date}\nmachine     {} cores, {}, load {} at the start; the server is on it too\nPostgreSQL  {version}, {}",
        std::thread::available_parallelism().map_or(0, usize::from),
        model.unwrap_or("unknown processor"),
        load(),
        settings.join(",\n            ")
    ))
}
