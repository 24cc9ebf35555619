//! Names and values in the text of statements.

/// Quotes a name as an identifier, whatever it contains (PostgreSQL manual, 4.1.1).
pub(super) fn quoted(name: &str) -> String {
    format!("\"{}\"", name.replace('"', "\"\""))
}

/// Quotes a text as an SQL constant, whatever it contains and however backslashes are read.
pub(super) fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''"))
}

/// Writes bytes as an SQL constant, however backslashes are read (`standard_conforming_strings`).
pub(super) fn bytes(bytes: &[u8]) -> String {
    format!("E'\\\\x{}'::bytea", hex::encode(bytes))
}
