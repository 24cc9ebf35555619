//! What a command prints: one JSON document, or the same for people, as a table or as lines; and its error.

use std::io::{self, ErrorKind, IsTerminal, Write};
use std::process::ExitCode;
use std::slice;
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use idem_core::Error;
use idem_core::operator::{Counted, ago, harmless, is_harmless};
use serde::Serialize;
use serde_json::{Value, json};

/// The longest cell of a table, in characters.
const CELL: usize = 120;

/// The members of documents that are milliseconds.
const MILLIS: [&str; 6] = ["blocked_for", "last_seen", "oldest", "oldest_due", "relay_seen", "seen"];

/// What a role may do that may change nothing.
const READS: &str = "it may use: status, why, dead list, dead group, dead show, scheduled, outbox list, calls, workers, operations, \
                     doctor, page. idem roles --print has a role that may do more";

/// Why a command ends without having done all that it was told.
#[derive(Debug)]
pub(crate) struct Failure {
    exit: u8,
    error: String,
}

impl Failure {
    fn new(exit: u8, error: impl Into<String>) -> Self {
        Self { exit, error: error.into() }
    }

    /// The command line is wrong.
    pub(crate) fn usage(error: impl Into<String>) -> Self {
        Self::new(2, error)
    }

    /// Nothing matches.
    pub(crate) fn none(error: impl Into<String>) -> Self {
        Self::new(1, error)
    }

    /// The role may not do this.
    pub(crate) fn denied(error: impl Into<String>) -> Self {
        Self::new(4, error)
    }

    /// The database cannot be used.
    pub(crate) fn database(error: impl Into<String>) -> Self {
        Self::new(3, error)
    }

    /// The answer could not be written, or the terminal not be read.
    pub(crate) fn io(error: io::Error) -> Self {
        // `| head` has seen enough.
        match error.kind() {
            ErrorKind::BrokenPipe => Self::new(0, ""),
            _ => Self::new(74, format!("cannot write the answer, or read the terminal: {error}")),
        }
    }

    /// Prints the error, and returns the exit code.
    pub(crate) fn report(&self, is_json: bool) -> ExitCode {
        match &*self.error {
            "" => {}
            error if is_json => tell(&escaped(&json!({ "error": error }).to_string())),
            error => tell(&format!("error: {}", lines(error))),
        }
        ExitCode::from(self.exit)
    }
}

/// The exit code of a command that has done what it was told.
pub(crate) type Exit = Result<u8, Failure>;

/// An error of an operator's call. Names that do not exist are mistakes of the command line.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        match error {
            Error::Config(_) => Self::usage(text),
            Error::Denied { .. } => Self::denied(format!("{text}\n{READS}")),
            _ => Self::database(text),
        }
    }
}

/// Prints a line on standard error. Nobody may read it (any more), as behind `2>&1 | head`: that is no reason to end.
pub(crate) fn tell(line: &str) {
    _ = writeln!(io::stderr(), "{line}");
}

/// Where a command prints its answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    is_json: bool,
    /// The columns of the terminal. `None` for a file or a pipe.
    columns: Option<u16>,
}

impl Output {
    pub(crate) fn new(is_json: bool) -> Self {
        let is_terminal = io::stdout().is_terminal();
        let columns = || terminal_size::terminal_size().map_or(80, |(columns, _)| columns.0);
        Self { is_json, columns: is_terminal.then(columns) }
    }

    /// Prints the document as JSON, or else the text that is made of it, if there is one.
    pub(crate) fn answer(self, document: &impl Serialize, text: impl FnOnce(&Value) -> String) -> Exit {
        let document = serde_json::to_value(document).map_err(|error| Failure::io(error.into()))?;
        let text = if self.is_json { escaped(&document.to_string()) } else { text(&document) };
        if text.is_empty() { Ok(0) } else { self.bytes(format!("{}\n", text.trim_end_matches('\n')).as_bytes()) }
    }

    /// Prints these bytes.
    pub(crate) fn bytes(self, bytes: &[u8]) -> Exit {
        let mut out = io::stdout().lock();
        out.write_all(bytes).and_then(|()| out.flush()).map(|()| 0).map_err(Failure::io)
    }

    /// A table of these members of rows, as wide as the terminal. In a file or a pipe, columns are separated by tabs, for cut and awk.
    pub(crate) fn table(self, members: &[&str], rows: &Value) -> String {
        let cells = |row: &Value| members.iter().map(|names| cell(row, names)).collect::<Vec<_>>();
        let rows: Vec<_> = rows.as_array().into_iter().flatten().map(cells).collect();
        if rows.is_empty() {
            return String::new();
        }
        let heads: Vec<_> = members.iter().map(|names| names.to_uppercase().replace('_', " ")).collect();
        let Some(width) = self.columns else {
            return [heads].iter().chain(&rows).map(|row| row.join("\t") + "\n").collect();
        };
        let mut table = Table::new();
        table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Dynamic).set_width(width);
        table.set_header(heads).add_rows(rows);
        table.column_iter_mut().for_each(|column| _ = column.set_padding((0, 2)));
        table.trim_fmt() + "\n"
    }
}

/// One line of a member, or of several with slashes between them.
fn cell(row: &Value, names: &str) -> String {
    let text = names.split('/').map(|name| plain(name, &row[name])).collect::<Vec<_>>().join("/");
    harmless(text.lines().next().unwrap_or("-"), CELL)
}

/// The members of a document that have a value, a line for each; those of its parts are indented.
pub(crate) fn facts(document: &Value) -> String {
    let mut text = String::new();
    for (name, value) in document.as_object().into_iter().flatten() {
        for part in value.as_array().map_or(slice::from_ref(value), Vec::as_slice) {
            let shown = if part.is_object() { facts(part) } else { lines(&plain(name, part)) };
            if shown.contains('\n') {
                let indented = shown.lines().map(|line| format!("  {line}\n"));
                text += &format!("{name}\n{}", indented.collect::<String>());
            } else if !shown.is_empty() {
                text += &format!("{name:<14}{shown}\n");
            }
        }
    }
    text
}

/// The value of a member, as people read it. It is not harmless yet.
fn plain(name: &str, value: &Value) -> String {
    if let (Some(rows), Some(at_least)) = (value["rows"].as_u64(), value["at_least"].as_bool()) {
        return Counted { rows, at_least }.to_string();
    }
    if value["processed"].is_u64() {
        return format!("{}/{}/{}", value["processed"], value["duplicates"], value["failed"]);
    }
    match (value, value.as_u64()) {
        (Value::Null, _) => String::new(),
        (Value::String(text), _) => text.clone(),
        (_, Some(millis)) if MILLIS.contains(&name) => ago(Duration::from_millis(millis)),
        _ => value.to_string(),
    }
}

/// A JSON document whose texts control no terminal. It means the same.
fn escaped(json: &str) -> String {
    let mut escaped = String::with_capacity(json.len());
    for character in json.chars() {
        match is_harmless(character) {
            true => escaped.push(character),
            false => character.encode_utf16(&mut [0; 2]).iter().for_each(|unit| escaped += &format!("\\u{unit:04x}")),
        }
    }
    escaped
}

/// Several lines from outside, none of which controls a terminal.
pub(crate) fn lines(text: &str) -> String {
    text.split('\n').map(|line| harmless(line, usize::MAX)).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIPE: Output = Output { is_json: false, columns: None };
    const TERMINAL: Output = Output { is_json: false, columns: Some(40) };

    #[test]
    fn a_pipe_gets_tabs_and_a_terminal_columns() {
        let row = json!({ "id": 1, "consumer": "shop", "handler": "ship", "error": "no table\nin it" });
        let rows = json!([row, { "id": 22, "handler": null, "error": "" }]);
        let members = ["id", "consumer/handler", "error"];
        let piped = "ID\tCONSUMER/HANDLER\tERROR\n1\tshop/ship\tno table\n22\t/\t-\n";
        assert_eq!(PIPE.table(&members, &rows), piped);
        let shown = "ID  CONSUMER/HANDLER  ERROR\n1   shop/ship         no table\n22  /                 -\n";
        assert_eq!(TERMINAL.table(&members, &rows), shown);
        assert_eq!(TERMINAL.table(&members, &json!([])), "");
    }

    #[test]
    fn nothing_from_outside_controls_the_terminal() {
        let rows = json!([{ "error": "\x1b[2J\t\u{202e}evil\n" }]);
        for out in [PIPE, TERMINAL] {
            let table = out.table(&["error"], &rows);
            assert!(!table.contains(['\x1b', '\u{202e}']) && table.lines().count() == 2, "{table:?}");
        }
        assert_eq!(lines("a\x1b[2J\nb").lines().count(), 2);
        assert!(!facts(&rows[0]).contains(['\x1b', '\u{202e}']));
    }

    #[test]
    fn a_document_is_shown_by_its_members() {
        let document =
            json!({ "a": null, "row": { "id": 7, "seen": 61_000 }, "hints": ["one", "two"], "text": "x\ny" });
        let shown =
            "hints         one\nhints         two\nrow\n  id            7\n  seen          1 min 1 s\ntext\n  x\n  y\n";
        assert_eq!(facts(&document), shown);
        let dead = json!({ "dead": { "rows": 10_000, "at_least": true } });
        assert_eq!(cell(&dead, "dead"), "at least 10,000");
        let hour = json!({ "hour": { "processed": 7, "duplicates": 1, "failed": 0 } });
        assert_eq!(cell(&hour, "hour"), "7/1/0");
    }

    #[test]
    fn json_is_harmless_and_means_the_same() {
        let text = "csi \u{9b}2J, \u{202e}, tag \u{e0001}, \u{e9} and \"\n";
        let json = escaped(&json!([text]).to_string());
        assert!(!json.contains(['\u{9b}', '\u{202e}', '\u{e0001}']) && json.contains('\u{e9}'), "{json}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&json).unwrap(), [text]);
    }

    #[test]
    fn what_a_reader_has_closed_is_no_error() {
        assert_eq!(Failure::io(ErrorKind::BrokenPipe.into()).exit, 0);
        assert_eq!(Failure::io(ErrorKind::StorageFull.into()).exit, 74);
    }
}
