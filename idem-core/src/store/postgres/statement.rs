//! An SQL statement with the schema's name inserted.

use std::sync::Arc;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres as Pg};

/// An SQL statement with the schema's name inserted, built once per store.
#[derive(Clone)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    pub(super) fn new(template: &str, schema: &str) -> Self {
        Self(template.replace("{schema}", schema).into())
    }

    /// Returns the text, to be followed by more.
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text to send.
    pub(super) fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    /// Returns the text with at most nine values as literals, none of which may contain a dollar sign.
    pub(super) fn with(&self, values: &[String]) -> String {
        let name = |(at, value): (usize, &String)| (format!("${}", at + 1), value.clone());
        let named = values.iter().enumerate().map(name);
        named.fold(self.0.to_string(), |text, (name, value)| text.replace(&name, &value))
    }

    /// Returns a query to bind values to.
    pub(super) fn query<'q>(&self) -> Query<'q, Pg, PgArguments> {
        // Safe: the text consists of constants and the quoted name of the schema.
        sqlx::query(AssertSqlSafe(self.0.clone()))
    }
}

/// Quotes a name as an identifier, whatever it contains (PostgreSQL manual, 4.1.1).
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
