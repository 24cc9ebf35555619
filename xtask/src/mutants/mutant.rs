//! One deliberate defect, as stored in `xtask/mutants`.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use crate::cargo::root;

/// The deliberate defects of one area of the code: a file in `xtask/mutants`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Area {
    mutant: Vec<Mutant>,
}

/// One deliberate defect.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Mutant {
    pub(crate) name: String,
    /// The guarantee that would be lost if no test caught the defect, in one sentence.
    pub(crate) proves: String,
    /// The file to change, relative to the root of the repository.
    pub(crate) file: String,
    /// The changes to the file.
    edits: Vec<Edit>,
    /// The arguments of `cargo test` that select the target of the test: its package, then `--lib`, or `--test` and a name. What
    /// the package does not need is not built.
    pub(crate) suite: Vec<String>,
    /// The full name of the test that must fail.
    pub(crate) test: String,
}

/// One change. It is no patch, which would break with each change of a line around it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The text to replace. It must occur exactly once.
    find: String,
    /// The replacement.
    replace: String,
}

impl Mutant {
    /// Returns all mutants, sorted by name. Fails if two have the same name.
    pub(crate) fn all() -> Result<Vec<Self>> {
        let dir = root().join("xtask").join("mutants");
        let mut mutants = Vec::new();
        for entry in fs::read_dir(&dir).with_context(|| format!("cannot read {}", dir.display()))? {
            let path = entry?.path();
            if path.extension().is_some_and(|extension| extension == "toml") {
                let area = fs::read_to_string(&path)?;
                let area: Area = toml::from_str(&area).with_context(|| format!("in {}", path.display()))?;
                mutants.extend(area.mutant);
            }
        }
        mutants.sort_by(|a: &Self, b| a.name.cmp(&b.name));
        if let Some(twice) = mutants.windows(2).find(|two| two[0].name == two[1].name) {
            bail!("two mutants have the name {}", twice[0].name);
        }
        Ok(mutants)
    }

    /// Returns the changed text of the file, read below `dir`. Fails as [`Self::applied_to`].
    pub(crate) fn applied(&self, dir: &Path) -> Result<String> {
        let file = dir.join(&self.file);
        let read = fs::read_to_string(&file);
        self.applied_to(read.with_context(|| format!("mutant {}: cannot read {}", self.name, file.display()))?)
    }

    /// Returns this text of the file with the changes. Fails unless each text to replace occurs exactly once: otherwise
    /// the code has changed, and the mutant must be updated.
    pub(crate) fn applied_to(&self, mut text: String) -> Result<String> {
        for Edit { find, replace } in &self.edits {
            match text.matches(find).count() {
                1 => text = text.replacen(find, replace, 1),
                times => bail!("mutant {}: {find:?} is {times} times in {}, and not once", self.name, self.file),
            }
        }
        Ok(text)
    }
}
