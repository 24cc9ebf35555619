//! The statements that run for each message.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, SqlSafeStr as _, SqlStr};

use super::claims_sql::{CLAIM, EXISTING_CLAIM};
use super::session::STATE;
use super::sql::Prefix;

/// These statements, with the prefix inserted once per store.
#[derive(Debug)]
pub(super) struct Statements {
    pub(super) claim: SqlStr,
    pub(super) existing_claim: SqlStr,
    /// BEGIN, the claim and the guard's savepoint, whether or not the claim is new.
    pub(super) begin_with_claim: SqlStr,
    /// The guard and COMMIT, with what the handler has left on its connection.
    pub(super) commit: SqlStr,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        // Shared, so that a copy for each message costs nothing.
        let shared = |text: String| AssertSqlSafe(Arc::<str>::from(text)).into_sql_str();
        let claim = prefix.sql(CLAIM).0;
        // The savepoint has the same name whatever the prefix.
        let begin = format!("BEGIN IMMEDIATE; {claim}; SAVEPOINT \"idem_guard\"");
        Self {
            claim: shared(claim),
            existing_claim: shared(prefix.sql(EXISTING_CLAIM).0),
            begin_with_claim: shared(begin),
            commit: shared(format!("RELEASE \"idem_guard\"; COMMIT; {STATE}")),
        }
    }
}
