//! The copy of the repository in which mutants are built, and the servers of their tests.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;

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
