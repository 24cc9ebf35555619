//! A copy of the repository that may be changed.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::cargo::root;

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
