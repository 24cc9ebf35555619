//! The table of latest versions, as handlers use it.

use std::sync::Arc;

/// The statement by which a handler that takes `Latest` raises the version of an entity, for the table of a store.
#[derive(Debug, Clone)]
#[cfg_attr(not(any(feature = "postgres", feature = "sqlite")), expect(dead_code, reason = "no connection reads it"))]
pub struct LatestVersions(Arc<str>);

impl LatestVersions {
    /// Takes the statement. Its parameters are the id of the handler (an `int`), the entity (bytes) and the version (a
    /// `bigint`), in this order. It returns a row if the entity has no version yet, or a lower one, and stores this one
    /// then. It is sent as it is.
    pub fn new(statement: impl Into<Arc<str>>) -> Self {
        Self(statement.into())
    }

    /// Returns the statement.
    #[cfg(any(feature = "postgres", feature = "sqlite"))]
    pub(crate) fn statement(&self) -> sqlx::AssertSqlSafe<Arc<str>> {
        // Safe: it comes from the store, and the values are bound.
        sqlx::AssertSqlSafe(self.0.clone())
    }
}
