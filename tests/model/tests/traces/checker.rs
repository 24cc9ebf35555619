//! Runs the checker, which is the program of this package.

use std::process::{Command, Output};

use uuid::Uuid;

/// Asserts that a trace is accepted.
pub(crate) fn accepted(trace: &str) {
    let (file, output) = check(trace);
    let told = told(&output);
    assert!(output.status.success(), "{told}\nThe trace is in {file}.");
    println!("{told}");
    // What is left over is no failure.
    let _ = std::fs::remove_file(file);
}

/// Asserts that a trace is refused, with a report that names the key, a record, and what was possible.
#[track_caller]
pub(crate) fn refused(trace: &str, why: &str) {
    let (file, output) = check(trace);
    let told = told(&output);
    assert!(!output.status.success(), "{why}, and it was accepted: {file}");
    for part in ["the key \"", "Not possible: record ", "Possible would have been:"] {
        assert!(told.contains(part), "{why}: {told}\nThe trace is in {file}.");
    }
    let _ = std::fs::remove_file(file);
}

fn check(trace: &str) -> (String, Output) {
    let file = std::env::temp_dir().join(format!("idem-trace-{}", Uuid::new_v4().simple()));
    std::fs::write(&file, trace).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_idem-model")).arg("--check").arg(&file).output().unwrap();
    (file.display().to_string(), output)
}

fn told(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}
