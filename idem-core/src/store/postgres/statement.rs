//! A statement with the schema's name in it.

use std::sync::Arc;

use sqlx::postgres::PgArguments;
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, Postgres as Pg};

/// A statement with the schema's name in it, made once per store.
#[derive(Clone)]
pub(super) struct Statement(Arc<str>);

impl Statement {
    pub(super) fn new(template: &str, schema: &str) -> Self {
        Self(template.replace("{schema}", schema).into())
    }

    /// The statement as it is sent.
    pub(super) fn text(&self) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.0.clone())
    }

    /// The statement with at most nine values as literals, none of which holds a dollar sign.
    pub(super) fn with(&self, values: &[String]) -> String {
        let name = |(at, value): (usize, &String)| (format!("${}", at + 1), value.clone());
        let named = values.iter().enumerate().map(name);
        named.fold(self.0.to_string(), |text, (name, value)| text.replace(&name, &value))
    }

    /// The statement, to bind values to.
    pub(super) fn query<'q>(&self) -> Query<'q, Pg, PgArguments> {
        // Nothing but the quoted name of the schema and constants are in the text.
        sqlx::query(AssertSqlSafe(self.0.clone()))
    }
}

/// A name as an identifier, whatever is in it (PostgreSQL manual, 4.1.1).
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}
