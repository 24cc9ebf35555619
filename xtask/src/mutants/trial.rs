//! Builds the suite of a mutant in a copy of the repository, and runs the named test.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};

use super::mutant::Mutant;
use super::presence::absent;
use crate::cargo::{Program, cargo, failures, root};

/// A test that runs for more seconds than this hangs.
const PATIENCE: u32 = 180;

/// The result of a mutant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The test failed, ended its process, or did not end.
    Caught,
    /// The test passed.
    Survived,
    /// The test did not run.
    Absent,
    /// The mutant does not compile and proves nothing.
    Broken,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Caught => "caught",
            Self::Survived => "SURVIVED",
            Self::Absent => "ERROR: the test did not run",
            Self::Broken => "ERROR: it does not compile",
        })
    }
}

/// The copy of the repository in which mutants are built, and the servers of their tests.
pub(crate) struct Workshop {
    tree: Tree,
    env: Vec<(&'static str, String)>,
}

impl Workshop {
    pub(crate) fn new(env: Vec<(&'static str, String)>) -> Result<Self> {
        Ok(Self { tree: Tree::copy("mutants/tree")?, env })
    }

    /// Builds with this mutant, and runs its test.
    pub(crate) fn judge(&self, mutant: &Mutant) -> Result<Verdict> {
        self.tree.write(&mutant.file, &mutant.applied(self.tree.path())?)?;
        let programs = self.build(&mutant.suite());
        self.tree.restore(&mutant.file)?;
        let Some(programs) = programs? else { return Ok(Verdict::Broken) };
        verdict(programs.iter().map(|program| self.run(program, &[&mutant.test], PATIENCE)))
    }

    /// The control: fails unless the tests of these mutants of one suite exist, and pass without a defect.
    pub(crate) fn check_sound(&self, suite: &[&str], mutants: &[Mutant]) -> Result<()> {
        eprintln!("\n{} without a defect", suite.join(" "));
        let programs = self.build(suite)?.context("the tests do not compile without a defect either")?;
        let missing = absent(mutants.iter(), &programs)?;
        if !missing.is_empty() {
            bail!("these tests do not exist:\n{}", missing.join("\n"));
        }
        let tests: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.test.as_str()).collect();
        let tests: Vec<&str> = tests.into_iter().collect();
        for program in &programs {
            let (passed, said) = self.run(program, &tests, PATIENCE * 20)?;
            if !passed {
                bail!("these do not pass without a defect either:\n{}", failures(&said));
            }
        }
        Ok(())
    }

    /// Runs these tests. Returns whether they passed, and the output. After so many seconds, they are killed with their
    /// children.
    fn run(&self, program: &Program, tests: &[&str], patience: u32) -> Result<(bool, String)> {
        let mut run = program.command(&["timeout", "--signal=KILL", &patience.to_string()]);
        run.arg("--exact").args(tests).envs(self.env.iter().cloned()).env("CI", "true");
        let ran = run.stdin(Stdio::null()).stderr(Stdio::null()).output().context("cannot run a test program")?;
        Ok((ran.status.success(), String::from_utf8_lossy(&ran.stdout).into_owned()))
    }

    /// Builds a suite in the copy, with the features of all packages: it thereby reuses the builds of registry crates from the
    /// repository.
    fn build(&self, suite: &[&str]) -> Result<Option<Vec<Program>>> {
        let mut test: Command = cargo(["test", "--workspace", "--all-features"]);
        test.args(suite).current_dir(self.tree.path()).env("CARGO_TARGET_DIR", root().join("target"));
        // Each crate is built once for each of its mutants, even where everything else is built only once.
        Program::build(test.env("CARGO_INCREMENTAL", "1"))
    }
}

/// Judges the runs of all programs of a suite, several of which may have a test of this name: one that fails is enough.
fn verdict(runs: impl Iterator<Item = Result<(bool, String)>>) -> Result<Verdict> {
    let mut verdict = Verdict::Absent;
    for run in runs {
        let (passed, said) = run?;
        if !passed {
            return Ok(Verdict::Caught);
        }
        if said.contains("\ntest result: ok. 1 passed") {
            verdict = Verdict::Survived;
        }
    }
    Ok(verdict)
}

/// A copy of the repository that may be changed.
pub(crate) struct Tree(PathBuf);

impl Tree {
    /// Updates the copy in this folder of `target`: all files that git tracks or would add. An unchanged file keeps its modification time, so that
    /// cargo rebuilds only what has changed.
    pub(crate) fn copy(folder: &str) -> Result<Self> {
        let tree = Self(root().join("target").join(folder));
        let mut git = Command::new("git");
        let git = git.args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]).current_dir(root());
        let listed = git.output().context("cannot run git")?;
        ensure!(listed.status.success(), "git ls-files failed: {}", String::from_utf8_lossy(&listed.stderr));
        let listed = String::from_utf8(listed.stdout).context("a file name that is not UTF-8")?;
        let mut files = HashSet::new();
        // git still lists a deleted file if the deletion is not committed.
        for file in listed.split_terminator('\0').filter(|file| root().join(file).is_file()) {
            tree.restore(file)?;
            files.insert(tree.0.join(file));
        }
        prune(&tree.0, &files)?;
        Ok(tree)
    }

    /// Returns the path of the copy.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Writes a file of the copy.
    pub(crate) fn write(&self, file: &str, text: &str) -> Result<()> {
        fs::write(self.0.join(file), text).with_context(|| format!("cannot write {file}"))
    }

    /// Restores a file from the repository.
    pub(crate) fn restore(&self, file: &str) -> Result<()> {
        let (from, to) = (root().join(file), self.0.join(file));
        let text = fs::read(&from).with_context(|| format!("cannot read {file}"))?;
        if fs::read(&to).ok().as_ref() == Some(&text) {
            return Ok(());
        }
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir)?;
        }
        // The modification time is not copied: a restored file must be newer than the build of its defect.
        fs::write(&to, text).with_context(|| format!("cannot write {}", to.display()))
    }
}

/// Removes files that are no longer in the repository. `target` belongs to the tests of the copy.
fn prune(dir: &Path, files: &HashSet<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let path = entry.path();
        if entry.file_type()?.is_dir() {
            if entry.file_name() != "target" {
                prune(&path, files)?;
            }
        } else if !files.contains(&path) {
            fs::remove_file(&path)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSED: &str = "running 1 test\ntest a ... ok\n\ntest result: ok. 1 passed; 0 failed";
    const NONE: &str = "running 0 tests\n\ntest result: ok. 0 passed; 0 failed";

    fn judged(runs: &[(bool, &str)]) -> Verdict {
        verdict(runs.iter().map(|(passed, said)| Ok((*passed, (*said).to_owned())))).unwrap()
    }

    /// Each adapter has the suite `sink`, with the same tests.
    #[test]
    fn a_test_that_fails_in_one_of_several_programs_has_failed() {
        assert_eq!(judged(&[(true, PASSED), (true, NONE), (true, PASSED)]), Verdict::Survived);
        assert_eq!(judged(&[(true, PASSED), (false, "running 1 test\ntest a ... "), (true, NONE)]), Verdict::Caught);
    }

    #[test]
    fn a_test_that_no_program_has_is_absent() {
        assert_eq!(judged(&[(true, NONE), (true, NONE)]), Verdict::Absent);
        assert_eq!(judged(&[]), Verdict::Absent);
    }
}
