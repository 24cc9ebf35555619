//! All tests of the workspace, as two rows of test programs that run at once.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, bail};

use crate::cargo::{Program, announce, cargo, failures, root, run};
use crate::mutants;

const EVERYTHING: [&str; 2] = ["--workspace", "--all-features"];

/// The directories of the packages whose tests mostly wait: for servers that start, stop, or hand out a partition, and
/// for outages to last. Cargo runs one program after another, and the processor was idle for nine tenths of most.
const WAITING: [&str; 3] = ["idem-adapters", "tests/faults", "xtask/services"];

/// The directories of the packages whose tests compute most, and some of which measure time. They run when most tests that
/// wait have ended.
const LAST: [&str; 2] = ["idem-conformance", "tests/pipeline"];

/// Builds all tests and runs them with these variables, then those of the documentation. Beside the tests that wait,
/// `checks` run first. A failure ends only its own program.
pub(crate) fn run_all(env: &[(&str, String)], checks: impl FnOnce() -> Result<()>) -> Result<()> {
    let mut test = cargo(["test"]);
    announce(test.args(EVERYTHING));
    let began = Instant::now();
    let mut programs = Program::build(&mut test)?.context("the tests do not compile")?;
    eprintln!("built ({:.0} s)", began.elapsed().as_secs_f64());
    let absent = mutants::tests_exist(&programs);
    programs.sort_by(|a, b| (is_last(a), &a.package, &a.executable).cmp(&(is_last(b), &b.package, &b.executable)));
    let (waiting, busy): (VecDeque<_>, VecDeque<_>) = programs.into_iter().partition(waits);
    let (waiting, busy) = (Mutex::new(waiting), Mutex::new(busy));
    let [waiting, busy] = [&waiting, &busy].map(|row| || row.lock().unwrap_or_else(PoisonError::into_inner));
    let mut failed = thread::scope(|scope| -> Result<Vec<String>> {
        // When the tests that wait have ended, this row takes others from their end: one program with a few threads does
        // not keep the processor busy, since all tests wait for a disk.
        let waiting = scope.spawn(|| run_row(|| waiting().pop_front().or_else(|| busy().pop_back()), env));
        let checked = checks();
        let mut failed = run_row(|| busy().pop_front(), env)?;
        failed.extend(waiting.join().map_err(|_| anyhow!("a row of test programs panicked"))??);
        failed.extend(checked.err().map(|error| format!("{error:#}")));
        Ok(failed)
    })?;
    failed.extend(absent.err().map(|error| format!("{error:#}")));
    // Last, so that the output ends with that of `cargo test`. The examples of the macros run with the facade, which includes
    // their documentation: with `--doc`, cargo ignores that the crate has `doctest = false`.
    let mut docs = cargo(["test", "--doc", "--no-fail-fast", "--exclude", "idem-macros"]);
    let docs = run(docs.args(EVERYTHING).envs(env.iter().cloned()));
    failed.extend(docs.err().map(|error| error.to_string()));
    if !failed.is_empty() {
        bail!("tests failed:\n{}", failed.join("\n"));
    }
    Ok(())
}

fn is_last(program: &Program) -> bool {
    is_in(program, &LAST)
}

fn waits(program: &Program) -> bool {
    is_in(program, &WAITING)
}

fn is_in(program: &Program, dirs: &[&str]) -> bool {
    dirs.iter().any(|dir| program.package.starts_with(root().join(dir)))
}

/// Runs one program after another. Returns those that failed, with their failed tests.
fn run_row(mut next: impl FnMut() -> Option<Program>, env: &[(&str, String)]) -> Result<Vec<String>> {
    let logs = root().join("target/suites");
    fs::create_dir_all(&logs)?;
    let mut failed = Vec::new();
    while let Some(program) = next() {
        let name = program.executable.file_name().context("cargo named no executable")?.to_string_lossy();
        let log = logs.join(&*name);
        if !run_program(program.command(&[]).envs(env.iter().cloned()), &log)? {
            failed.push(format!("{name}\n{}", failures(&String::from_utf8_lossy(&fs::read(log)?))));
        }
    }
    Ok(failed)
}

/// Runs a program, and prints its output when it has ended: another one runs concurrently with it. Returns whether it passed.
fn run_program(command: &mut Command, log: &Path) -> Result<bool> {
    let name = log.file_name().unwrap_or_default().to_string_lossy();
    let file = File::create(log).context("cannot write the output of a test program")?;
    command.stdin(Stdio::null()).stderr(file.try_clone()?).stdout(file);
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n     Running {name}")?;
    out.write_all(&fs::read(log)?)?;
    if !status.success() {
        writeln!(out, "{name} failed ({status})")?;
    }
    Ok(status.success())
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn each_directory_of_tests_that_wait_is_there_and_others_do_not_wait() {
        for dir in WAITING {
            let package = root().join(dir);
            assert!(package.is_dir(), "{dir}");
            assert!(waits(&Program { executable: PathBuf::new(), package }));
        }
        for dir in LAST {
            let last = Program { executable: PathBuf::new(), package: root().join(dir) };
            assert!(is_last(&last) && last.package.is_dir() && !waits(&last), "{dir}");
        }
    }

    #[test]
    fn a_program_that_fails_and_the_output_of_both_streams_are_seen() {
        let log = std::env::temp_dir().join(format!("idem-suites-{}", std::process::id()));
        let sh = |script: &str| run_program(Command::new("sh").args(["-c", script]), &log).unwrap();
        assert!(!sh("echo to stdout; echo to stderr >&2; exit 101"));
        assert_eq!(fs::read_to_string(&log).unwrap(), "to stdout\nto stderr\n");
        assert!(sh("exit 0"));
        fs::remove_file(&log).unwrap();
    }
}
