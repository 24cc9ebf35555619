//! The SQLite store.

/// The SQLite store.
#[derive(Debug, Clone)]
pub struct Sqlite {}
