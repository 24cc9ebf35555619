//! Runs named tests in the copy and judges their results.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use crate::cargo::{cargo, root};
use crate::tree::Tree;

/// The copy in which tests run, and the servers they use.
pub(crate) struct Trial<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) env: &'a [(&'static str, String)],
}

/// The result of a named test for a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The test failed.
    Caught,
    /// The test ended its process, or did not end.
    Ended,
    /// The test passed.
    Survived,
    /// The test did not run.
    Absent,
    /// The mutant does not compile and proves nothing.
    Broken,
    /// There was no time left.
    Untried,
}

impl Verdict {
    pub(crate) fn is_caught(self) -> bool {
        matches!(self, Self::Caught | Self::Ended)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caught => "caught",
            Self::Ended => "caught (the test hung or ended its process)",
            Self::Survived => "SURVIVED",
            Self::Absent => "ERROR: the test did not run",
            Self::Broken => "ERROR: it does not compile",
            Self::Untried => "not tried",
        })
    }
}

impl Trial<'_> {
    /// Builds the suite and runs these tests. Returns the verdict and the duration of each.
    pub(crate) fn run(
        &self,
        suite: &[&str],
        tests: &[&str],
        patience: Duration,
    ) -> Result<HashMap<String, (Verdict, Duration)>> {
        if !self.cargo(suite).arg("--no-run").status().context("cannot run cargo")?.success() {
            return Ok(tests.iter().map(|test| ((*test).to_owned(), (Verdict::Broken, Duration::ZERO))).collect());
        }
        let log = self.tree.path().with_extension("log");
        let mut run = self.cargo(suite);
        run.args(["--no-fail-fast", "--", "--exact"]).args(tests).envs(self.env.iter().cloned()).env("CI", "true");
        run.stdin(Stdio::null()).stdout(fs::File::create(&log)?).stderr(Stdio::null()).process_group(0);
        let mut ends = HashMap::new();
        let in_time = finish(&mut run, patience, |elapsed| {
            let said = fs::read_to_string(&log).unwrap_or_default();
            for test in tests.iter().filter(|test| line(&said, test).is_some_and(|line| !line.ends_with("..."))) {
                ends.entry(*test).or_insert(elapsed);
            }
        })?;
        let said = fs::read_to_string(&log)?;
        let answer = |test: &&str| {
            let took = ends.get(test).copied().unwrap_or(patience);
            ((*test).to_owned(), (judge(&said, test, in_time), took))
        };
        Ok(tests.iter().map(answer).collect())
    }

    /// Returns `cargo test <suite>` in the copy, with the features of all packages. It thereby reuses the builds of
    /// registry crates from the repository.
    fn cargo(&self, suite: &[&str]) -> Command {
        let mut command = cargo(["test", "--workspace", "--all-features"]);
        command.args(suite).current_dir(self.tree.path()).env("CARGO_TARGET_DIR", root().join("target"));
        // Each crate is built once for each of its mutants, even where everything else is built only once.
        command.env("CARGO_INCREMENTAL", "1");
        command
    }
}

/// Runs the command and calls `look` meanwhile. If the command takes too long, kills it with all its children. Returns
/// whether the command ended by itself.
fn finish(command: &mut Command, patience: Duration, mut look: impl FnMut(Duration)) -> Result<bool> {
    let mut child = command.spawn().context("cannot run cargo")?;
    let start = Instant::now();
    while start.elapsed() < patience {
        let ended = child.try_wait()?.is_some();
        look(start.elapsed());
        if ended {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)?;
    child.wait()?;
    Ok(false)
}

/// Returns the test harness's result line for this test, `... ok` or `... FAILED`.
fn line<'a>(said: &'a str, test: &str) -> Option<&'a str> {
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_prefix(test)?.strip_prefix(' '));
    lines.next().map(str::trim_end)
}

/// Derives the verdict from the lines of the test harness, `test <name> ... ok`. A test that aborts its process or
/// hangs has no such line, or an incomplete one.
fn judge(said: &str, test: &str, in_time: bool) -> Verdict {
    let line = line(said, test);
    let began = line.is_some() || said.contains("running 1 test") && !said.contains("test result: ok. 1 passed");
    match line {
        Some(line) if line.ends_with("FAILED") => Verdict::Caught,
        Some(line) if line.ends_with("... ok") => Verdict::Survived,
        _ if began || !in_time => Verdict::Ended,
        _ => Verdict::Absent,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_verdict_is_read_from_the_line_of_the_test() {
        let said = "running 2 tests\ntest a_b ... FAILED\ntest a ... ok\n\ntest result: FAILED. 1 passed";
        assert_eq!(judge(said, "a", true), Verdict::Survived);
        assert_eq!(judge(said, "a_b", true), Verdict::Caught);
        assert_eq!(judge(said, "c", true), Verdict::Absent);
    }

    #[test]
    fn a_test_that_takes_its_process_with_it_or_hangs_is_no_test_that_passed() {
        assert_eq!(judge("running 1 test\ntest a ... ", "a", true), Verdict::Ended);
        assert_eq!(judge("running 1 test\n", "a", true), Verdict::Ended);
        assert_eq!(judge("running 1 test\n", "a", false), Verdict::Ended);
    }

    #[test]
    fn a_test_that_is_not_there_has_no_verdict() {
        let none = "running 0 tests\n\ntest result: ok. 0 passed";
        assert_eq!(judge(none, "a", true), Verdict::Absent);
    }
}
