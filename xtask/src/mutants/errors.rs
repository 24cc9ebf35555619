//! The errors of the compiler, read from the messages of cargo.

use std::collections::HashSet;

use serde::Deserialize;

/// The errors of the compiler.
#[derive(Default)]
pub(crate) struct Errors {
    /// The files that they name, relative to the root of the repository.
    pub(crate) files: HashSet<String>,
    /// As the compiler prints them.
    pub(crate) text: String,
}

/// The part of cargo's messages about an error that is needed here.
#[derive(Deserialize)]
struct Message {
    message: Diagnostic,
}

#[derive(Deserialize)]
struct Diagnostic {
    level: String,
    rendered: String,
    spans: Vec<Span>,
}

#[derive(Deserialize)]
struct Span {
    file_name: String,
}

impl Errors {
    /// Reads the lines of `cargo check --message-format=json`.
    pub(crate) fn read(lines: &str) -> Self {
        let mut errors = Self::default();
        let messages = lines.lines().filter_map(|line| serde_json::from_str::<Message>(line).ok());
        // The last error of a crate names no file: it counts the others.
        let is_error = |error: &Diagnostic| error.level == "error" && !error.spans.is_empty();
        for error in messages.map(|message| message.message).filter(is_error) {
            errors.files.extend(error.spans.into_iter().map(|span| span.file_name));
            errors.text.push_str(&error.rendered);
        }
        errors
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_have_a_file_and_warnings_are_none() {
        let lines = [
            r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml"}"#,
            r#"{"message":{"level":"warning","rendered":"w","spans":[{"file_name":"w.rs","line_start":1}]}}"#,
            r#"{"message":{"level":"error","rendered":"e","spans":[{"file_name":"a.rs","line_start":1}]}}"#,
            r#"{"message":{"level":"error","rendered":"f","spans":[{"file_name":"b.rs","line_start":1}]}}"#,
            r#"{"message":{"level":"error","rendered":"aborting due to 2 previous errors","spans":[]}}"#,
            r#"{"reason":"build-finished","success":false}"#,
        ];
        let errors = Errors::read(&lines.join("\n"));
        assert_eq!(errors.text, "ef");
        assert_eq!(errors.files, HashSet::from(["a.rs", "b.rs"].map(str::to_owned)));
    }
}
