//! Texts for errors about tables that are not as idem created them, or that a role may not use.

use super::statement::quoted;

/// How to create what is missing.
pub(super) const CURE: &str = "create it with the SQL of `Postgres::migrations()`, or give `.schema(..)` a new name; \
                               a new schema has no claims, so all messages are new there";

/// The schema, as named in error messages.
pub(super) fn place(schema: &str) -> String {
    format!("the schema {schema:?}")
}

/// The privileges that the role of a worker needs. Its numbers come from identity columns, which need no grant of their own.
pub(super) fn grants(schema: &str, role: &str) -> String {
    let (schema, role) = (quoted(schema), quoted(role));
    format!(
        "GRANT USAGE ON SCHEMA {schema} TO {role}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {schema} TO \
         {role}"
    )
}
