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
        let program = self.build(&mutant.suite);
        self.tree.restore(&mutant.file)?;
        let Some(program) = program? else { return Ok(Verdict::Broken) };
        let (passed, said) = self.run(&program, &[&mutant.test], PATIENCE)?;
        Ok(verdict(passed, &said))
    }

    /// The control: fails unless the tests of these mutants of one suite exist, and pass without a defect.
    pub(crate) fn check_sound(&self, suite: &[String], mutants: &[Mutant]) -> Result<()> {
        eprintln!("\n{} without a defect", suite.join(" "));
        let program = self.build(suite)?.context("the tests do not compile without a defect either")?;
        let missing = absent(mutants.iter(), std::slice::from_ref(&program))?;
        if !missing.is_empty() {
            bail!("these tests do not exist:\n{}", missing.join("\n"));
        }
        let tests: BTreeSet<&str> = mutants.iter().map(|mutant| mutant.test.as_str()).collect();
        let tests: Vec<&str> = tests.into_iter().collect();
        let (passed, said) = self.run(&program, &tests, PATIENCE * 20)?;
        if !passed {
            bail!("these do not pass without a defect either:\n{}", failures(&said));
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

    /// Builds the test program of a suite in the copy.
    fn build(&self, suite: &[String]) -> Result<Option<Program>> {
        let mut test: Command = cargo(["test", "--all-features"]);
        test.args(suite).current_dir(self.tree.path()).env("CARGO_TARGET_DIR", root().join("target"));
        // Each crate is built once for each of its mutants, even where everything else is built only once.
        let programs = Program::build(test.env("CARGO_INCREMENTAL", "1"))?;
        Ok(programs.and_then(|programs| programs.into_iter().next()))
    }
}

/// Judges a run of the test.
fn verdict(passed: bool, said: &str) -> Verdict {
    match passed {
        false => Verdict::Caught,
        true if said.contains("\ntest result: ok. 1 passed") => Verdict::Survived,
        true => Verdict::Absent,
    }
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

    #[test]
    fn a_test_that_has_not_run_proves_nothing() {
        let said = |passed| format!("running {passed} test\n\ntest result: ok. {passed} passed; 0 failed");
        assert_eq!(verdict(true, &said(1)), Verdict::Survived);
        assert_eq!(verdict(true, &said(0)), Verdict::Absent);
        assert_eq!(verdict(false, "running 1 test\ntest a ... "), Verdict::Caught);
    }
}
