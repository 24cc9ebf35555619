//! One deliberate defect, as it is kept in `xtask/mutants`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cargo::root;

/// One deliberate defect. The name is that of its file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    #[serde(skip)]
    pub(crate) name: String,
    /// What would be lost if no test caught it, in one sentence.
    pub(crate) proves: String,
    /// The file that it changes, from the root of the repository.
    pub(crate) file: String,
    /// What is changed in it.
    edits: Vec<Edit>,
    /// What to give `cargo test` to choose the target that holds the test.
    suite: Vec<String>,
    /// The full name of the test that must fail.
    pub(crate) test: String,
}

/// One change.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The text that goes. It must be there exactly once.
    find: String,
    /// The text that comes instead.
    replace: String,
}

impl Mutant {
    /// All of them, by name.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let dir = root().join("xtask").join("mutants");
        let mut mutants = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                mutants.push(Self::read(&path).with_context(|| format!("in {}", path.display()))?);
            }
        }
        mutants.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(mutants)
    }

    fn read(path: &Path) -> Result<Self> {
        let mut mutant: Self = toml::from_str(&fs::read_to_string(path)?)?;
        mutant.name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(mutant)
    }

    /// The changed file, read below this directory. An error where a text to be replaced is not there exactly once: the
    /// code has moved on, and the mutant must follow.
    pub(crate) fn applied(&self, dir: &Path) -> Result<String> {
        let file = dir.join(&self.file);
        let read = fs::read_to_string(&file);
        let mut text = read.with_context(|| format!("mutant {}: cannot read {}", self.name, file.display()))?;
        for Edit { find, replace } in &self.edits {
            match text.matches(find).count() {
                1 => text = text.replacen(find, replace, 1),
                times => bail!("mutant {}: {find:?} is {times} times in {}, and not once", self.name, self.file),
            }
        }
        Ok(text)
    }

    /// The arguments that choose the target of its test. A package and its features are left out: a build of one package
    /// unifies the features of its dependencies in another way than a build of all, and would build them all again.
    pub(crate) fn suite(&self) -> Vec<&str> {
        let mut suite = Vec::new();
        let mut given = self.suite.iter().map(String::as_str);
        while let Some(arg) = given.next() {
            match arg {
                "--package" => _ = given.next(),
                "--all-features" => {}
                arg => suite.push(arg),
            }
        }
        if suite.is_empty() { vec!["--test", "faults"] } else { suite }
    }
}
