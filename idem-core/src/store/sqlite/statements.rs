//! The statements that run for each message.

use std::sync::Arc;

use sqlx::AssertSqlSafe;

use super::claims_sql::{CLAIM, EXISTING_CLAIM};
use super::sql::Prefix;

/// These statements, with the prefix inserted once per store.
#[derive(Debug)]
pub(super) struct Statements {
    claim: Arc<str>,
    existing_claim: Arc<str>,
}

impl Statements {
    pub(super) fn new(prefix: &Prefix) -> Self {
        let text = |text: &str| -> Arc<str> { prefix.sql(text).0.into() };
        Self { claim: text(CLAIM), existing_claim: text(EXISTING_CLAIM) }
    }

    pub(super) fn claim(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.claim.clone())
    }

    pub(super) fn existing_claim(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.existing_claim.clone())
    }
}
