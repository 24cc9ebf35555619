//! Runs the checker, and keeps what it was wrong about.

use idem_model::check_trace;
use uuid::Uuid;

/// Asserts that a trace is accepted.
#[track_caller]
pub(crate) fn accepted(trace: &str) {
    match check_trace(trace) {
        Ok(checked) => println!("{checked}"),
        Err(refusal) => panic!("{refusal}\nThe trace is in {}.", kept(trace)),
    }
}

/// Asserts that a trace is refused, with a report that names the key, a record, and what was possible.
#[track_caller]
pub(crate) fn refused(trace: &str, why: &str) {
    let Err(refusal) = check_trace(trace) else {
        panic!("{why}, and it was accepted. The trace is in {}.", kept(trace))
    };
    for part in ["the key \"", "Not possible: record ", "Possible would have been:"] {
        assert!(refusal.contains(part), "{why}: {refusal}\nThe trace is in {}.", kept(trace));
    }
}

/// Writes a trace to a file, and returns its name.
fn kept(trace: &str) -> String {
    let file = std::env::temp_dir().join(format!("idem-trace-{}", Uuid::new_v4().simple()));
    std::fs::write(&file, trace).unwrap();
    file.display().to_string()
}
