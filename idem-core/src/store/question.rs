//! Questions of operators, which the database answers as JSON.

use std::time::Duration;

/// A question, with its text for each database. [`Consumers::ask`](super::Consumers::ask) answers it.
///
/// The text of a question consists of constants; input is only in its [values](Value). Each row of its answer has one column, of text
/// or of JSON.
///
/// In both texts, a store fills in `{now}` and `{clock}` (the time at which the statement began, and the current one), `{greatest}` (the
/// function), and of a row `i` of the inbox `{due}` (when a worker may have it), `{ordinary}` and `{orphan}` (the predicates of the
/// two indexes of scheduled rows); for PostgreSQL also `{schema}`. On SQLite the names of tables begin with `idem_`, and times are
/// milliseconds.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Question {
    /// Its name, by which a store that has neither dialect recognizes it.
    pub name: &'static str,
    /// The statement for PostgreSQL.
    pub postgres: String,
    /// The statement for SQLite.
    pub sqlite: String,
    /// Whether it changes something, in one transaction, also if the text for SQLite has several statements. Otherwise the store
    /// keeps it from doing so, and a standby can answer it.
    pub writes: bool,
    /// How long the answer may take. One that changes something has no more than ten seconds.
    pub patience: Duration,
}

/// How long the answer to a question may take, unless it says something else.
const PATIENCE: Duration = Duration::from_secs(10);

impl Question {
    /// A question that changes nothing, and whose answer may take ten seconds.
    pub fn new(name: &'static str, postgres: impl Into<String>, sqlite: impl Into<String>) -> Self {
        Self { name, postgres: postgres.into(), sqlite: sqlite.into(), writes: false, patience: PATIENCE }
    }

    /// It changes something.
    pub fn writes(self) -> Self {
        Self { writes: true, ..self }
    }

    /// The answer may take so long.
    pub fn patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }
}

/// A value of a question; the first one is `$1` in its text, or `?1`.
// Exhaustive: a store binds each of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// An integer of 64 bits.
    Int(Option<i64>),
    /// A text. PostgreSQL refuses one with a NUL.
    Text(Option<String>),
    /// Bytes.
    Bytes(Option<Vec<u8>>),
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Self::Int(Some(value))
    }
}

impl From<Option<i64>> for Value {
    fn from(value: Option<i64>) -> Self {
        Self::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Self::Text(Some(value.to_owned()))
    }
}

impl From<String> for Value {
    fn from(value: String) -> Self {
        Self::Text(Some(value))
    }
}

impl From<Option<String>> for Value {
    fn from(value: Option<String>) -> Self {
        Self::Text(value)
    }
}

impl From<Vec<u8>> for Value {
    fn from(value: Vec<u8>) -> Self {
        Self::Bytes(Some(value))
    }
}
