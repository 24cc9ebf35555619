//! Runs named tests in the copy, and judges.

use std::collections::HashMap;
use std::fmt;
use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::tree::Tree;
use crate::cargo::{cargo, root};

/// Where tests run, and with which servers.
pub(crate) struct Trial<'a> {
    pub(crate) tree: &'a Tree,
    pub(crate) env: &'a [(&'static str, String)],
}

/// What a named test said to a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It failed.
    Caught,
    /// It ended its process, or did not end itself.
    Ended,
    /// It passed.
    Survived,
    /// It did not run.
    Absent,
    /// The mutant does not compile, and proves nothing.
    Broken,
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
        })
    }
}

impl Trial<'_> {
    /// Builds the suite and runs these tests of it. Answers what each said, and after what time.
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

    /// `cargo test <suite>` in the copy, with the features that all packages together have. So crates from the registry are
    /// those that the repository's own builds have made.
    fn cargo(&self, suite: &[&str]) -> Command {
        let mut command = cargo(["test", "--workspace", "--all-features"]);
        command.args(suite).current_dir(self.tree.path()).env("CARGO_TARGET_DIR", root().join("target"));
        command
    }
}

/// Runs the command, looking on, and ends it with all its children if it takes too long. Answers whether it ended by itself.
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

/// What the test harness has written of this test, `... ok` or `... FAILED`.
fn line<'a>(said: &'a str, test: &str) -> Option<&'a str> {
    let mut lines = said.lines().filter_map(|line| line.strip_prefix("test ")?.strip_prefix(test)?.strip_prefix(' '));
    lines.next().map(str::trim_end)
}

/// Reads the verdict from the lines of the test harness, `test <name> ... ok`. One that aborts its process, or hangs, has
/// no such line, or one without its end.
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
