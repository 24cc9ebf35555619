//! The PostgreSQL store.

/// The PostgreSQL store.
#[derive(Debug, Clone)]
pub struct Postgres {}
