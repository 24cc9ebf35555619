//! Texts for errors about tables that are not as idem created them.

/// How to create what is missing.
pub(super) const CURE: &str = "add it as idem-core/migrations/postgres has it, or give `.schema(..)` a new name, under \
                               which nothing is known of what was processed before";

/// The schema, as named in error messages.
pub(super) fn place(schema: &str) -> String {
    format!("the schema {schema:?}")
}
