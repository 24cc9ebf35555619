//! `cargo xtask api`: the public API of the published crates, as the files in docs/api list it.
//!
//! rustdoc writes its JSON only with an unstable option, whose format belongs to the version of the compiler. The crate
//! `public-api` reads the format of Rust 1.95, the version that CI runs; both change together.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::{PUBLISHED, cargo, root, run};

/// Set for the rustdoc that cargo starts, which is this program.
const AS_RUSTDOC: &str = "IDEM_XTASK_RUSTDOC";
/// Where the lists are.
const FOLDER: &str = "docs/api";

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Accept the changes: write the files.
    #[arg(long)]
    write: bool,
}

/// Compares the public API of each published crate with its file, or writes the files.
pub(crate) fn check(options: &Options) -> Result<()> {
    let json = document()?;
    let core = list(&json.join("idem_core.json"))?;
    let mut changes = Vec::new();
    for name in PUBLISHED {
        let file = Path::new(FOLDER).join(format!("{name}.txt"));
        let now = public_paths(&list(&json.join(format!("{}.json", library(name))))?, &core);
        if options.write {
            fs::create_dir_all(root().join(FOLDER))?;
            fs::write(root().join(&file), now).with_context(|| format!("cannot write {}", file.display()))?;
            continue;
        }
        // A crate without a file is new: all of its lines are.
        let kept = fs::read_to_string(root().join(&file)).unwrap_or_default();
        let different = differences(&kept, &now);
        if !different.is_empty() {
            changes.push(format!("{}:\n{}", file.display(), different.join("\n")));
        }
    }
    if !changes.is_empty() {
        bail!(
            "the public API is not the one in {FOLDER}. If a change is intended, accept it by `cargo xtask api --write` and \
             commit the files. A line with - breaks users of the last version.\n{}",
            changes.join("\n")
        );
    }
    Ok(())
}

/// The name of the library of a crate.
fn library(name: &str) -> String {
    if name == "idem-rs" { "idem".to_owned() } else { name.replace('-', "_") }
}

/// Has rustdoc describe the crates in JSON, and returns the folder of the files. Dependencies are those that `cargo doc`
/// has checked: only the files have a folder of their own, and only rustdoc, not cargo, is told to allow the option.
fn document() -> Result<PathBuf> {
    let target = root().join("target");
    let mut command = cargo(["doc", "--no-deps", "--lib", "--all-features", "--target-dir", "target/api"]);
    command.args(PUBLISHED.iter().flat_map(|name| ["--package", *name]));
    command.env("CARGO_BUILD_BUILD_DIR", std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| target.clone().into()));
    // As docs.rs sets it, so that the features that the documentation names there are compiled once.
    command.env("RUSTDOC", std::env::current_exe().context("cannot tell where this program is")?);
    command.env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cfg docsrs").env(AS_RUSTDOC, "1");
    run(&mut command)?;
    Ok(target.join("api/doc"))
}

/// Runs as rustdoc if [`document`] has started cargo. Otherwise returns `None`.
pub(crate) fn as_rustdoc() -> Option<ExitCode> {
    std::env::var_os(AS_RUSTDOC)?;
    // Set for cargo, the variable would also reach the build scripts that look for unstable features, and everything
    // would be built a second time.
    let error = Command::new("rustdoc").args(std::env::args_os().skip(1)).env("RUSTC_BOOTSTRAP", "1").exec();
    eprintln!("error: cannot run rustdoc: {error}");
    Some(ExitCode::FAILURE)
}

/// The public items of a crate, one a line, with a line break behind each. Auto traits (`Send`) and what all types have
/// (`From<T> for T`) are left out, since they would be most of the list.
fn list(json: &Path) -> Result<String> {
    let name = json.file_stem().and_then(OsStr::to_str).unwrap_or_default();
    let api = public_api::Builder::from_rustdoc_json(json)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .with_context(|| {
            format!("cannot read rustdoc's JSON for {name}: `public-api` in xtask/Cargo.toml reads that of Rust 1.95")
        })?;
    Ok(api.items().map(|item| format!("{item}\n")).collect())
}

/// Replaces the paths at which idem-core's files define a type by those at which users name it, so that a file can move
/// without a change here. `core` is the list of idem-core, which names its public modules.
fn public_paths(list: &str, core: &str) -> String {
    let modules: BTreeSet<_> = core.lines().filter_map(|line| line.strip_prefix("pub mod ")).collect();
    let mut parts = list.split("idem_core::");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (mut path, mut rest) = ("idem_core".to_owned(), part);
        while let Some((module, inner)) = rest.split_once("::")
            && module.chars().all(|letter| letter.is_ascii_lowercase() || letter == '_')
        {
            let inside = format!("{path}::{module}");
            if modules.contains(inside.as_str()) {
                path = inside;
            }
            rest = inner;
        }
        shown += &format!("{path}::{rest}");
    }
    shown
}

/// The lines of only one of two lists, marked like those of a diff.
fn differences(kept: &str, now: &str) -> Vec<String> {
    let (before, after): (BTreeSet<_>, BTreeSet<_>) = (kept.lines().collect(), now.lines().collect());
    let gone = before.difference(&after).map(|line| format!("- {line}"));
    gone.chain(after.difference(&before).map(|line| format!("+ {line}"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_only_public_modules() {
        let core = "pub mod idem_core\npub mod idem_core::store\n";
        let list = "pub fn idem_a::f(idem_core::store::row::Row) -> idem_core::error::Error\nimpl idem_core::Key\n";
        let shown = "pub fn idem_a::f(idem_core::store::Row) -> idem_core::Error\nimpl idem_core::Key\n";
        assert_eq!(public_paths(list, core), shown);
    }

    #[test]
    fn a_line_that_is_gone_and_one_that_is_new_are_differences() {
        assert_eq!(
            differences("pub fn a()\npub fn b()\n", "pub fn b()\npub fn c()\n"),
            ["- pub fn a()", "+ pub fn c()"]
        );
        assert!(differences("pub fn a()\n", "pub fn a()\n").is_empty());
    }
}
