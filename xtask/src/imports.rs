//! Reads the paths in Rust source files, as far as the checks of imports need them.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

pub(crate) fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// Returns the text without line comments, so that a link in a comment is not an import.
pub(crate) fn without_comments(text: &str) -> String {
    let code: Vec<_> = text.lines().map(|line| line.split("//").next().unwrap_or(line)).collect();
    code.join("\n")
}

/// Returns the paths that begin with `beginning`, each relative to `base`.
pub(crate) fn absolute(code: &str, beginning: &str, base: &[String]) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for (at, _) in code.match_indices(beginning) {
        let is_part = code[..at].ends_with(|before: char| before.is_alphanumeric() || matches!(before, '_' | ':'));
        if !is_part {
            tree(&code[at + beginning.len()..], base, &mut paths);
        }
    }
    paths
}

/// Returns the paths that a file re-exports: `pub use a::b;`, `pub(crate) use a::{b, c};`.
pub(crate) fn shown(code: &str) -> Vec<Vec<String>> {
    let mut paths = Vec::new();
    for line in code.split("\npub").skip(1) {
        let rest = line.strip_prefix("(crate)").or_else(|| line.strip_prefix("(super)")).unwrap_or(line);
        if let Some(path) = rest.strip_prefix(" use ") {
            tree(path, &[], &mut paths);
        }
    }
    paths
}

/// Adds the paths of a tree of imports, and returns the text after it.
fn tree<'a>(text: &'a str, base: &[String], paths: &mut Vec<Vec<String>>) -> &'a str {
    let text = text.trim_start();
    if let Some(mut rest) = text.strip_prefix('{') {
        while !rest.trim_start().starts_with('}') && !rest.is_empty() {
            rest = tree(rest, base, paths).trim_start();
            rest = rest.strip_prefix(',').unwrap_or(rest);
        }
        return rest.trim_start().strip_prefix('}').unwrap_or_default();
    }
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    match name {
        "" => {
            paths.push(base.to_vec());
            rest.get(1..).unwrap_or_default()
        }
        "self" => {
            paths.push(base.to_vec());
            rest
        }
        "super" => tree(rest.strip_prefix("::").unwrap_or(rest), &base[..base.len().saturating_sub(1)], paths),
        name => {
            let path = [base, &[name.to_owned()]].concat();
            match rest.strip_prefix("::") {
                Some(rest) => tree(rest, &path, paths),
                None => {
                    paths.push(path);
                    rest
                }
            }
        }
    }
}
