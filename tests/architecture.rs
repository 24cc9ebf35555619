//! The files and functions that ARCHITECTURE.md names are in the tree.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fs;
use std::path::{Path, PathBuf};

/// The words of the page between backticks, without those of its pictures.
fn quoted() -> Vec<&'static str> {
    let page = include_str!("../ARCHITECTURE.md");
    let texts = page.split("```").step_by(2);
    texts.flat_map(|text| text.split('`').skip(1).step_by(2)).collect()
}

/// The path of a file or folder that the page names: one of the core, or from the root.
fn found(name: &str) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    [root.join("idem-core/src").join(name), root.to_path_buf().join(name)].into_iter().find(|path| path.exists())
}

#[test]
fn the_architecture_names_files_and_folders_that_exist() {
    let names = quoted().into_iter().map(|name| name.split(": ").next().unwrap());
    let paths = names.filter(|name| !name.contains(['*', ' ']) && (name.contains('/') || name.ends_with(".rs")));
    let missing: Vec<&str> = paths.filter(|path| found(path).is_none()).collect();
    assert!(missing.is_empty(), "these are not in the tree: {missing:?}");
}

#[test]
fn the_files_on_the_way_of_a_message_have_the_functions_that_the_architecture_names() {
    let steps: Vec<_> = quoted().into_iter().filter_map(|step| step.split_once(".rs: ")).collect();
    assert!(steps.len() > 40, "the page names only {} steps", steps.len());
    let has = |file: &str, function: &str| {
        let text = found(&format!("{file}.rs")).map(|path| fs::read_to_string(path).unwrap()).unwrap_or_default();
        [format!("fn {function}("), format!("fn {function}<")].iter().any(|start| text.contains(start))
    };
    let missing: Vec<_> = steps.into_iter().filter(|(file, function)| !has(file, function)).collect();
    assert!(missing.is_empty(), "these files do not have these functions: {missing:?}");
}
