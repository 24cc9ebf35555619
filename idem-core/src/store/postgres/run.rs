//! The run of a server, from its start or from its recovery after a crash.

/// An expression for the run of the server: when it was started, and when its statistics were reset. A crash of one of its
/// processes restarts the others without the first, and always resets the statistics (`pgstat_discard_stats` in
/// `StartupXLOG`, from PostgreSQL 15 on). Anything else that resets them only makes two runs of one: so it is read as a
/// transaction begins, and a reset matters only to those that are open. Null if a time is not known.
pub(super) const RUN: &str = "extract(epoch FROM pg_catalog.pg_postmaster_start_time())::text || ' '
    || extract(epoch FROM pg_catalog.pg_stat_get_bgwriter_stat_reset_time())::text";
