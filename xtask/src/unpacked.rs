//! The unpacked packages as one workspace.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use toml::{Table, Value};

use crate::cargo::{PUBLISHED, cargo, root, run};

/// What is also compiled by itself. Together, a package has the features that another one asks of its dependencies, and
/// may lack them.
const SINGLE: &[&[&str]] = &[
    &["--package", "idem-rs", "--no-default-features", "--features", "postgres"],
    &["--package", "idem-test"],
    // With the features with which everything else has built its C library.
    &["--package", "idem-kafka", "--all-features"],
    &["--package", "idem-nats"],
    &["--package", "idem-rabbitmq"],
];

/// Checks that the packages in `target/package` compile, each with the packages of the others, so that no package lacks a
/// file: all together with all features, and those of [`SINGLE`] by themselves. Dependencies from crates.io are mostly
/// those that the workspace has compiled, so it is quick.
pub(crate) fn check() -> Result<()> {
    let target = root().join("target");
    let dir = target.join("package/unpacked");
    // A file that has left a package would stay.
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir_all(&dir)?;
    for name in PUBLISHED {
        let package = target.join("package").join(format!("{}.crate", folder(name)));
        // With the time of now: in a package all files are of one time, and cargo would take new ones for those that it has
        // compiled before.
        let unpacked =
            Command::new("tar").arg("xzmf").arg(&package).current_dir(&dir).status().context("cannot run tar")?;
        ensure!(unpacked.success(), "cannot unpack {}", package.display());
    }
    let workspace = fs::read_to_string(root().join("Cargo.toml")).context("cannot read Cargo.toml")?;
    fs::write(dir.join("Cargo.toml"), manifest(&workspace)?)?;
    fs::copy(root().join("Cargo.lock"), dir.join("Cargo.lock"))?;
    let build = std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| target.into());
    let together: &[&str] = &["--workspace", "--all-features"];
    for which in [together].iter().chain(SINGLE) {
        let mut command = cargo(["check", "--lib", "--target-dir", "target"]);
        run(command.args(*which).env("CARGO_BUILD_BUILD_DIR", &build).current_dir(&dir))?;
    }
    Ok(())
}

/// The folder of a package. All crates have the version of this one.
fn folder(name: &str) -> String {
    format!("{name}-{}", env!("CARGO_PKG_VERSION"))
}

/// A workspace of the packages. It has the profiles of the repository, with which dependencies have been compiled.
fn manifest(workspace: &str) -> Result<String> {
    let of_repository: Table = toml::from_str(workspace).context("Cargo.toml")?;
    let members = PUBLISHED.map(folder).map(Value::String).to_vec();
    let patches = PUBLISHED.map(|name| (name.to_owned(), Value::Table(Table::from_iter([path(name)]))));
    let patch = Table::from_iter([("crates-io".to_owned(), Value::Table(Table::from_iter(patches)))]);
    let set = Table::from_iter([
        ("resolver".to_owned(), Value::String("3".to_owned())),
        ("members".to_owned(), Value::Array(members)),
    ]);
    let mut manifest =
        Table::from_iter([("workspace".to_owned(), Value::Table(set)), ("patch".to_owned(), Value::Table(patch))]);
    if let Some(profile) = of_repository.get("profile") {
        manifest.insert("profile".to_owned(), profile.clone());
    }
    toml::to_string(&manifest).context("the manifest of the packages")
}

fn path(name: &str) -> (String, Value) {
    ("path".to_owned(), Value::String(folder(name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_packages_take_each_other_and_the_profiles_of_the_repository() {
        let manifest: Table = toml::from_str(&manifest("[profile.dev]\ndebug = 1\n").unwrap()).unwrap();
        assert_eq!(manifest["workspace"]["members"].as_array().unwrap().len(), PUBLISHED.len());
        assert_eq!(manifest["patch"]["crates-io"]["idem-core"]["path"].as_str(), Some(&*folder("idem-core")));
        assert_eq!(manifest["profile"]["dev"]["debug"].as_integer(), Some(1));
    }
}
