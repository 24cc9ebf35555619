//! `cargo xtask deny`: the licences, sources and advisories of the dependencies, as deny.toml allows them.

use std::fs;

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use serde::Deserialize;

use crate::cargo::{cargo, root, run};
use crate::license;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Also run cargo-deny (`cargo install cargo-deny --locked`), which fetches the advisory database from GitHub.
    #[arg(long)]
    advisories: bool,
}

/// The parts of deny.toml that are checked without cargo-deny.
#[derive(Deserialize)]
struct Rules {
    licenses: Licenses,
    sources: Sources,
}

#[derive(Deserialize)]
struct Licenses {
    allow: Vec<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Sources {
    allow_registry: Vec<String>,
}

/// The output of `cargo metadata`.
#[derive(Deserialize)]
struct Metadata {
    packages: Vec<Package>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
    version: String,
    license: Option<String>,
    /// `None` for a package of the workspace.
    source: Option<String>,
}

/// Checks every package of Cargo.lock, for all platforms. The error lists each one that is not allowed.
pub(crate) fn check(options: &Options) -> Result<()> {
    let rules = fs::read_to_string(root().join("deny.toml")).context("cannot read deny.toml")?;
    let rules: Rules = toml::from_str(&rules).context("deny.toml")?;
    let wrong: Vec<String> = packages()?.iter().flat_map(|package| rules.violations(package)).collect();
    if !wrong.is_empty() {
        bail!("deny.toml does not allow these dependencies:\n{}", wrong.join("\n"));
    }
    if options.advisories {
        run(&mut cargo(["deny", "check"]))?;
    }
    Ok(())
}

fn packages() -> Result<Vec<Package>> {
    let output = cargo(["metadata", "--format-version=1", "--all-features"]).output().context("cannot run cargo")?;
    ensure!(output.status.success(), "cargo metadata failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    let metadata: Metadata = serde_json::from_slice(&output.stdout).context("the output of cargo metadata")?;
    Ok(metadata.packages)
}

impl Rules {
    fn violations(&self, package: &Package) -> Vec<String> {
        let Package { name, version, license, source } = package;
        let mut wrong = Vec::new();
        let license = license.as_deref().unwrap_or_default();
        if !license::is_allowed(license, &self.licenses.allow) {
            wrong.push(format!("{name} {version}: license {license:?}"));
        }
        if let Some(source) = source
            && !self.sources.allow_registry.iter().any(|url| source.strip_prefix("registry+") == Some(url.as_str()))
        {
            wrong.push(format!("{name} {version}: source {source}"));
        }
        wrong
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn violations(license: Option<&str>, source: Option<&str>) -> usize {
        let rules = Rules {
            licenses: Licenses { allow: vec!["MIT".to_owned()] },
            sources: Sources { allow_registry: vec!["https://registry".to_owned()] },
        };
        let (license, source) = (license.map(str::to_owned), source.map(str::to_owned));
        rules.violations(&Package { name: "a".to_owned(), version: "1.0.0".to_owned(), license, source }).len()
    }

    #[test]
    fn a_license_and_a_source_must_be_allowed() {
        assert_eq!(violations(Some("MIT"), None), 0);
        assert_eq!(violations(Some("MIT"), Some("registry+https://registry")), 0);
        assert_eq!(violations(None, Some("registry+https://registry")), 1);
        assert_eq!(violations(Some("GPL-3.0-only"), Some("git+https://registry")), 2);
    }
}
