//! The first programs of the README and of the guide, as a user builds them: each in a package of its own, with the
//! dependencies that stand beside it. Doc tests do not show that: they have the dependencies of the repository.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use crate::cargo::{cargo, root, run};

/// The pages that have a program and its dependencies.
const PAGES: [&str; 2] = ["README.md", "src/docs/getting_started.md"];

/// The folder of the clone, as the pages name it.
const CLONE: &str = "../idem";

/// Compiles the program of each page, with the versions of the repository's `Cargo.lock` and what it has compiled.
pub(crate) fn check() -> Result<()> {
    for page in PAGES {
        check_page(page).with_context(|| format!("the program of {page}"))?;
    }
    Ok(())
}

fn check_page(page: &str) -> Result<()> {
    let (root, target) = (root(), root().join("target"));
    let name = Path::new(page).file_stem().unwrap_or_default().to_string_lossy().to_lowercase();
    let package = target.join("readme").join(&name);
    let text = fs::read_to_string(root.join(page)).context("cannot read the page")?;
    let blocks = blocks(&text);
    let workspace = fs::read_to_string(root.join("Cargo.toml")).context("cannot read Cargo.toml")?;
    fs::create_dir_all(package.join("src"))?;
    fs::write(package.join("Cargo.toml"), manifest(&name, dependencies(&blocks)?, &root, &workspace)?)?;
    fs::write(package.join("src/main.rs"), program(&blocks)?)?;
    fs::copy(root.join("Cargo.lock"), package.join("Cargo.lock"))?;
    // The tests as well, since they have the development dependencies.
    let mut command = cargo(["check", "--offline", "--all-targets", "--target-dir", "target"]);
    command.env("CARGO_BUILD_BUILD_DIR", std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| target.into()));
    run(command.current_dir(package))
}

/// The blocks of code of a page: what stands behind the opening fence, and the text.
fn blocks(page: &str) -> Vec<(&str, &str)> {
    // Every second part is between two fences.
    let inside = page.split("```").skip(1).step_by(2);
    inside.filter_map(|block| block.split_once('\n')).collect()
}

/// The first block of dependencies.
fn dependencies<'a>(blocks: &[(&str, &'a str)]) -> Result<&'a str> {
    let found = blocks.iter().find(|(kind, text)| *kind == "toml" && text.starts_with("[dependencies]"));
    found.map(|(_, text)| *text).context("there is no block of TOML that begins with [dependencies]")
}

/// The first block that is a whole program.
fn program<'a>(blocks: &[(&str, &'a str)]) -> Result<&'a str> {
    let is_rust = |kind: &str| kind.is_empty() || kind.starts_with("rust");
    let found = blocks.iter().find(|(kind, text)| is_rust(kind) && text.contains("fn main()"));
    found.map(|(_, text)| *text).context("there is no block of Rust with a `main`")
}

/// A package with these dependencies and the clone at `root`. It has the profiles of the repository, with which
/// dependencies have been compiled.
fn manifest(name: &str, dependencies: &str, root: &Path, workspace: &str) -> Result<String> {
    ensure!(dependencies.contains(CLONE), "the dependencies do not have the path {CLONE}");
    let dependencies = dependencies.replace(CLONE, &root.to_string_lossy());
    let mut manifest: Table = toml::from_str(&dependencies).context("the dependencies are no TOML")?;
    let texts = [("name", name), ("version", "0.0.0"), ("edition", "2024")];
    let package = texts.map(|(key, value)| (key.to_owned(), Value::String(value.to_owned())));
    manifest.insert("package".to_owned(), Value::Table(Table::from_iter(package)));
    // It is no member of the repository's workspace.
    manifest.insert("workspace".to_owned(), Value::Table(Table::new()));
    let of_repository: Table = toml::from_str(workspace).context("Cargo.toml")?;
    if let Some(profile) = of_repository.get("profile") {
        manifest.insert("profile".to_owned(), profile.clone());
    }
    toml::to_string(&manifest).context("the manifest of the program")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_page_has_a_program_and_its_dependencies() {
        for page in PAGES {
            let text = fs::read_to_string(root().join(page)).unwrap();
            let blocks = blocks(&text);
            let program = program(&blocks).unwrap();
            assert!(program.contains("use idem::prelude::*;") && program.ends_with("}\n"), "{page}: {program}");
            let manifest = manifest("page", dependencies(&blocks).unwrap(), Path::new("/clone"), "").unwrap();
            let manifest: Table = toml::from_str(&manifest).unwrap();
            assert_eq!(manifest["dependencies"]["idem"]["path"].as_str(), Some("/clone"), "{page}");
            assert_eq!(manifest["package"]["name"].as_str(), Some("page"));
        }
    }

    #[test]
    fn a_page_without_a_program_is_an_error() {
        let blocks = blocks("```toml\n[lib]\n```\n```rust\nfn f() {}\n```\n");
        assert!(program(&blocks).is_err() && dependencies(&blocks).is_err());
    }
}
