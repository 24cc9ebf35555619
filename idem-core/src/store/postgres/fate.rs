//! What became of a transaction whose connection was dropped.

use sqlx::Row as _;

use crate::store::{Fate, Fault, Ticket};

use super::lanes::Lanes;

/// What became of this transaction of another connection. One that still runs is ended: its client has gone, and it holds
/// the claim.
pub(super) async fn of(lanes: &Lanes, ticket: &Ticket) -> Result<Fate, Fault> {
    let mut lane = lanes.own().await?;
    let status = sqlx::query("SELECT pg_catalog.pg_xact_status($1::text::pg_catalog.xid8)").bind(&ticket.0);
    let rows = match lane.alone(status).await {
        Ok(rows) => rows,
        // 22023: in the future of this server, which took over from one that had more. It never happened here.
        Err(failure) if failure.code() == Some("22023") => return Ok(Fate::RolledBack),
        Err(failure) => return Err(failure.into()),
    };
    let status: Option<String> = rows.first().map_or(Ok(None), |row| row.try_get(0))?;
    let fate = match status.as_deref() {
        Some("committed") => Fate::Committed,
        Some("in progress") => Fate::Running,
        // Aborted; or too old to be known, and then the claim tells.
        _ => Fate::RolledBack,
    };
    if fate == Fate::Running {
        // By the transaction's number, so that it is no other one, whatever is between. Where the role may not, it is waited
        // for.
        let end = sqlx::query(
            "SELECT pg_catalog.pg_terminate_backend(pid) FROM pg_catalog.pg_stat_activity
             WHERE backend_xid = ($1::text::pg_catalog.xid8)::pg_catalog.xid AND pid <> pg_catalog.pg_backend_pid()",
        );
        if let Err(failure) = lane.alone(end.bind(&ticket.0)).await {
            tracing::debug!(error = failure.into_error(), "a transaction that was cut off could not be ended");
            return Ok(fate);
        }
    }
    lane.put_back();
    Ok(fate)
}
