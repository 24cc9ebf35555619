//! The copy of the repository in which mutants are built, and the servers of their tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};

use super::background::Background;
use super::mutant::Mutant;
use super::trial::{Results, Trial};
use super::verdict::Verdict;
use crate::cargo::{cargo, root};
use crate::program::Program;
use crate::tree::Tree;

/// The copy of the repository in which mutants are built, and the servers of their tests.
pub(crate) struct Workshop {
    tree: Tree,
    env: Arc<Vec<(&'static str, String)>>,
    trials: AtomicUsize,
}

impl Workshop {
    pub(crate) fn new(env: Vec<(&'static str, String)>) -> Result<Self> {
        let workshop = Self { tree: Tree::copy("mutants/tree")?, env: Arc::new(env), trials: AtomicUsize::new(0) };
        if workshop.homes().exists() {
            fs::remove_dir_all(workshop.homes())?;
        }
        Ok(workshop)
    }

    /// The directory with one directory per trial. It is on the file system of cargo's target directory.
    fn homes(&self) -> PathBuf {
        self.tree.path().with_file_name("trials")
    }

    /// Builds the suite with this mutant and runs these tests, in the background if the suite allows that. Calls
    /// `tell` with the results, and adds its answer to those of the background.
    pub(crate) fn try_with<T: Send + 'static>(
        &self,
        mutant: Option<&Mutant>,
        suite: &[&str],
        tests: &[&str],
        patience: Duration,
        background: &mut Background<T>,
        tell: impl FnOnce(Results) -> T + Send + 'static,
    ) -> Result<()> {
        let Some(programs) = self.build(mutant, suite)? else {
            let broken = |test: &&str| ((*test).to_owned(), (Verdict::Broken, Duration::ZERO));
            background.add(tell(tests.iter().map(broken).collect()));
            return Ok(());
        };
        let home = self.homes().join(self.trials.fetch_add(1, Ordering::Relaxed).to_string());
        let trial = Trial::new(suite, programs, tests, patience, home)?;
        if !trial.outlives_its_build {
            background.add(tell(trial.run(&self.env)?));
            return Ok(());
        }
        let env = Arc::clone(&self.env);
        background.begin(move || Ok(tell(trial.run(&env)?)))
    }

    fn build(&self, mutant: Option<&Mutant>, suite: &[&str]) -> Result<Option<Vec<Program>>> {
        let Some(mutant) = mutant else { return self.build_suite(suite) };
        self.tree.write(&mutant.file, &mutant.applied(self.tree.path())?)?;
        let programs = self.build_suite(suite);
        self.tree.restore(&mutant.file)?;
        programs
    }

    fn build_suite(&self, suite: &[&str]) -> Result<Option<Vec<Program>>> {
        Program::build(self.cargo("test").args(suite))
    }

    /// Checks these targets of all packages, by default libraries and programs, with these texts of files. Returns the
    /// messages of cargo, in JSON, if they do not compile.
    pub(crate) fn check(&self, texts: &BTreeMap<&str, String>, targets: &[&str]) -> Result<Option<String>> {
        for (file, text) in texts {
            self.tree.write(file, text)?;
        }
        let mut check = self.cargo("check");
        let checked = check.args(targets).arg("--message-format=json").stderr(Stdio::inherit()).output();
        for file in texts.keys() {
            self.tree.restore(file)?;
        }
        let checked = checked.context("cannot run cargo")?;
        Ok((!checked.status.success()).then(|| String::from_utf8_lossy(&checked.stdout).into_owned()))
    }

    /// Returns `cargo <command>` in the copy, with the features of all packages: it thereby reuses the builds of
    /// registry crates from the repository.
    fn cargo(&self, command: &str) -> Command {
        let mut command = cargo([command, "--workspace", "--all-features"]);
        command.current_dir(self.tree.path()).env("CARGO_TARGET_DIR", root().join("target"));
        // Each crate is built once for each of its mutants, even where everything else is built only once.
        command.env("CARGO_INCREMENTAL", "1");
        command
    }
}
