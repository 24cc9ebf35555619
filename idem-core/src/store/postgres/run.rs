//! The run of a server, from its start or from its recovery after a crash.

/// An expression for the run of the server: when it was started, and when its statistics were reset. A crash of one of its
/// processes restarts the others without the first, and always resets the statistics (`pgstat_discard_stats` in
/// `StartupXLOG`, from PostgreSQL 15 on). Anything else that resets them only makes two runs of one: so it is read as a
/// transaction begins, and a reset matters only to those that are open. Null if a time is not known.
///
/// In hexadecimal, which costs the server less than two decimal numbers, and depends on no setting of the session.
pub(super) const RUN: &str = "pg_catalog.encode(pg_catalog.timestamptz_send(pg_catalog.pg_postmaster_start_time())
    || pg_catalog.timestamptz_send(pg_catalog.pg_stat_get_bgwriter_stat_reset_time()), 'hex')";
