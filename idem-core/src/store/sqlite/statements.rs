//! The statements that run for each message.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::claims_sql::{CLAIM, EXISTING_CLAIM};
use super::session::STATE;
use super::sql::Prefix;

/// These statements, with the prefix inserted once per store.
#[derive(Debug)]
pub(super) struct Statements {
    claim: Arc<str>,
    existing_claim: Arc<str>,
    begin_with_claim: Arc<str>,
    commit: Arc<str>,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let text = |text: &str| -> Arc<str> { prefix.sql(text).0.into() };
        let claim = text(CLAIM);
        // The savepoint has the same name whatever the prefix.
        let begin_with_claim = format!("BEGIN IMMEDIATE; {claim}; SAVEPOINT \"idem_guard\"").into();
        let commit = format!("RELEASE \"idem_guard\"; COMMIT; {STATE}").into();
        Self { claim, existing_claim: text(EXISTING_CLAIM), begin_with_claim, commit }
    }

    pub(super) fn claim(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.claim.clone())
    }

    /// Returns BEGIN, the claim and the guard's savepoint, whether or not the claim is new.
    pub(super) fn begin_with_claim(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.begin_with_claim.clone())
    }

    /// Returns the guard and COMMIT, with what the handler has left on its connection.
    pub(super) fn commit(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.commit.clone())
    }

    pub(super) fn existing_claim(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.existing_claim.clone())
    }
}
