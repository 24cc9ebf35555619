//! What is said of tables that are not as idem made them.

/// How what is missing is made.
pub(super) const CURE: &str = "add it as idem-core/migrations/postgres has it, or give `.schema(..)` a new name, under \
                               which nothing is known of what was processed before";

/// The schema, in the words of an error.
pub(super) fn place(schema: &str) -> String {
    format!("the schema {schema:?}")
}
