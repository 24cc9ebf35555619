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

    /// Returns the text with at most nine values as literals, none of which may contain a dollar sign. The name of the
    /// schema, which may, is the only text that stands between double quotes.
    pub(super) fn with(&self, values: &[String]) -> String {
        let replaced = |text: &str| {
            let values = values.iter().enumerate();
            values.fold(text.to_owned(), |text, (at, value)| text.replace(&format!("${}", at + 1), value))
        };
        let parts = self.0.split('"').enumerate();
        let parts = parts.map(|(at, part)| if at % 2 == 0 { replaced(part) } else { part.to_owned() });
        parts.collect::<Vec<String>>().join("\"")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_do_not_get_into_the_name_of_the_schema() {
        let statement = Statement::new("SELECT $1 FROM {schema}.claims WHERE key = $2", &quoted("odd $1 \" $2"));
        let text = statement.with(&["7".to_owned(), "'\"'".to_owned()]);
        assert_eq!(text, "SELECT 7 FROM \"odd $1 \"\" $2\".claims WHERE key = '\"'");
    }
}
