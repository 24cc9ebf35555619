//! The test programs of a suite, as cargo has built them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::cargo::{cargo, root};

/// The suites that need more than their own programs: they run other programs and examples in cargo's target directory,
/// or have cargo compile sources. The next build would replace these below them.
const BOUND_TO_THE_BUILD: [&str; 5] = ["faults", "workers", "operator", "stores", "ui"];

/// A test program.
pub(crate) struct Program {
    pub(crate) executable: PathBuf,
    /// The directory of its package, in which cargo runs it.
    pub(crate) package: PathBuf,
}

/// The part of cargo's messages about an executable that is needed here.
#[derive(Deserialize)]
struct Artifact {
    manifest_path: PathBuf,
    executable: PathBuf,
    profile: Profile,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

impl Program {
    /// Builds the suite in this copy of the repository. Returns its programs, or `None` if they do not compile.
    ///
    /// The build has the features of all packages. It thereby reuses the builds of registry crates from the repository.
    pub(crate) fn build(tree: &Path, suite: &[&str]) -> Result<Option<Vec<Self>>> {
        let mut build = cargo(["test", "--workspace", "--all-features", "--no-run"]);
        build.args(suite).arg("--message-format=json-render-diagnostics");
        build.current_dir(tree).env("CARGO_TARGET_DIR", root().join("target"));
        // Each crate is built once for each of its mutants, even where everything else is built only once.
        build.env("CARGO_INCREMENTAL", "1");
        let built = build.stderr(Stdio::inherit()).output().context("cannot run cargo")?;
        Ok(built.status.success().then(|| Self::named(&String::from_utf8_lossy(&built.stdout))))
    }

    /// Returns the test programs that cargo's messages name.
    fn named(messages: &str) -> Vec<Self> {
        let artifacts = messages.lines().filter_map(|line| serde_json::from_str::<Artifact>(line).ok());
        let tests = artifacts.filter(|artifact| artifact.profile.test);
        let program = |artifact: Artifact| Self {
            executable: artifact.executable,
            package: artifact.manifest_path.parent().map(Path::to_owned).unwrap_or_default(),
        };
        tests.map(program).collect()
    }

    /// Returns the same program under another name in this directory, where the next build does not replace it: a linker
    /// writes a new file. Fails if the directory is on another file system.
    pub(crate) fn kept_in(&self, dir: &Path) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let executable = dir.join(self.executable.file_name().context("cargo named no executable")?);
        fs::hard_link(&self.executable, &executable)
            .with_context(|| format!("cannot link {}", executable.display()))?;
        Ok(Self { executable, package: self.package.clone() })
    }

    /// Returns the command that runs the program as cargo does. The path of shared libraries, which the tests of macros
    /// need, is inherited: `cargo run` has set it for this program.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.executable);
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
            command.env_remove(name);
        }
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command
    }
}

/// Returns whether the next build may begin while the suite runs.
pub(crate) fn outlives_its_build(suite: &[&str]) -> bool {
    !suite.iter().any(|name| BOUND_TO_THE_BUILD.contains(name))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::imports::collect;

    #[test]
    fn only_test_programs_are_taken_from_the_messages_of_cargo() {
        let library = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":false},"executable":null}"#;
        let binary = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":false},"executable":"/t/b"}"#;
        let test = r#"{"reason":"compiler-artifact","manifest_path":"/a/Cargo.toml","profile":{"test":true},"executable":"/t/deps/b-1"}"#;
        let end = r#"{"reason":"build-finished","success":true}"#;
        let programs = Program::named(&[library, binary, test, end].join("\n"));
        assert_eq!(programs.len(), 1);
        assert_eq!(programs[0].executable, Path::new("/t/deps/b-1"));
        assert_eq!(programs[0].package, Path::new("/a"));
    }

    #[test]
    fn each_suite_that_runs_other_programs_of_the_build_is_bound_to_it() {
        let mut files = Vec::new();
        for dir in ["tests", "idem-core/tests", "idem-test/tests", "idem-adapters"] {
            collect(&root().join(dir), &mut files).unwrap();
        }
        let marks = ["CARGO_BIN_EXE_", "ancestors().nth(2)", "TestCases", "Command::new(\"rustc\")"];
        let mut bound = HashSet::new();
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            if marks.iter().any(|mark| text.contains(mark)) {
                let path = file.with_extension("").to_string_lossy().into_owned();
                let (_, inside) = path.rsplit_once("/tests/").unwrap();
                bound.insert(inside.split('/').next().unwrap().to_owned());
            }
        }
        assert_eq!(bound, BOUND_TO_THE_BUILD.map(str::to_owned).into());
    }

    #[test]
    fn no_build_begins_while_tests_run_programs_of_the_last_one() {
        assert!(outlives_its_build(&["--lib"]));
        assert!(outlives_its_build(&["--test", "pipeline_sqlite"]));
        assert!(!outlives_its_build(&["--test", "faults"]));
    }
}
