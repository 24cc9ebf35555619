//! Runs named tests of one build and judges their results.

use std::collections::HashMap;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::bound::outlives_its_build;
use super::verdict::{Verdict, ends};
use crate::program::Program;

/// A test that runs longer than this hangs; a developer would notice that too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(300);

/// The verdict and the duration of each test.
pub(crate) type Results = HashMap<String, (Verdict, Duration)>;

/// Named tests of one build.
pub(crate) struct Trial {
    programs: Vec<Program>,
    tests: Vec<String>,
    patience: Duration,
    /// A directory that belongs to this trial.
    home: PathBuf,
    /// Whether the next build may begin while this trial runs.
    pub(crate) outlives_its_build: bool,
}

impl Trial {
    /// Prepares to run these tests of the suite that was just built. The directory is created, and is removed after the
    /// run.
    pub(crate) fn new(
        suite: &[&str],
        programs: Vec<Program>,
        tests: &[&str],
        patience: Duration,
        home: PathBuf,
    ) -> Result<Self> {
        fs::create_dir_all(&home)?;
        let outlives_its_build = outlives_its_build(suite);
        // The other suites find their programs by the place of the executable.
        let programs = if outlives_its_build {
            programs.iter().map(|program| program.kept_in(&home)).collect::<Result<_>>()?
        } else {
            programs
        };
        let tests = tests.iter().map(ToString::to_string).collect();
        Ok(Self { programs, tests, patience, home, outlives_its_build })
    }

    /// Runs the tests with these variables.
    pub(crate) fn run(&self, env: &[(&'static str, String)]) -> Result<Results> {
        let log = self.home.join("log");
        let written = fs::File::create(&log)?;
        let start = Instant::now();
        let mut times = HashMap::new();
        let mut in_time = true;
        for program in self.programs.iter().filter(|_| start.elapsed() < self.patience) {
            let mut run = program.command();
            run.arg("--exact").args(&self.tests).envs(env.iter().cloned()).env("CI", "true");
            run.stdin(Stdio::null()).stdout(written.try_clone()?).stderr(Stdio::null());
            in_time &= finish(&mut run, start + self.patience, || self.look(&log, start, &mut times))?;
        }
        let said = fs::read_to_string(&log)?;
        fs::remove_dir_all(&self.home)?;
        let result = |test: &String| {
            let took = times.get(test).map_or(self.patience, |(_, took)| *took);
            (test.clone(), (Verdict::read(&said, test, in_time), took))
        };
        Ok(self.tests.iter().map(result).collect())
    }

    /// Notes for each test when its last end was first seen, and how many programs had ended it.
    fn look(&self, log: &Path, start: Instant, times: &mut HashMap<String, (usize, Duration)>) {
        let said = fs::read_to_string(log).unwrap_or_default();
        for test in &self.tests {
            let ends = ends(&said, test);
            if ends > times.get(test).map_or(0, |(ends, _)| *ends) {
                times.insert(test.clone(), (ends, start.elapsed()));
            }
        }
    }
}

/// Runs the command and calls `look` meanwhile. At the deadline, kills it with all its children. Returns whether the
/// command ended by itself.
fn finish(command: &mut Command, deadline: Instant, mut look: impl FnMut()) -> Result<bool> {
    let mut child = command.process_group(0).spawn().context("cannot run a test program")?;
    while Instant::now() < deadline {
        let ended = child.try_wait()?.is_some();
        look();
        if ended {
            return Ok(true);
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    killpg(Pid::from_raw(i32::try_from(child.id())?), Signal::SIGKILL)?;
    child.wait()?;
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_that_hangs_is_killed_with_its_children() {
        let mut command = Command::new("sh");
        let out = std::env::temp_dir().join(format!("idem-trial-{}", std::process::id()));
        command.args(["-c", "sleep 600 & echo $!; wait"]).stdout(fs::File::create(&out).unwrap());
        assert!(!finish(&mut command, Instant::now() + Duration::from_millis(500), || {}).unwrap());
        let child = fs::read_to_string(&out).unwrap();
        fs::remove_file(&out).unwrap();
        assert!(!child.is_empty());
        let lives = || {
            // A process that was killed may be a zombie until init reaps it.
            let state = fs::read_to_string(format!("/proc/{}/stat", child.trim())).unwrap_or_default();
            !state.is_empty() && !state.contains(") Z ")
        };
        let limit = Instant::now() + Duration::from_secs(10);
        while lives() {
            assert!(Instant::now() < limit, "the child still runs");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
