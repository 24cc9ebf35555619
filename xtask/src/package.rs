//! `cargo xtask package`: the packages of the published crates, as crates.io would receive them. Nothing is published.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{PUBLISHED, announce, cargo, root};
use crate::tree::Tree;
use crate::unpacked;

/// The files that each package must contain.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Have cargo verify each package by itself, from a registry that has the packages of the others. So each is
    /// compiled with no features of dependencies but its own. That takes many minutes, because it reuses nothing.
    #[arg(long)]
    pub(crate) verify: bool,
}

/// Creates the packages in `target/package`, and compiles them together.
pub(crate) fn check(options: &Options) -> Result<()> {
    for name in PUBLISHED {
        contains_files(name)?;
    }
    let mut command = cargo(["package", "--allow-dirty"]);
    command.args(PUBLISHED.iter().flat_map(|name| ["--package", *name]));
    if options.verify {
        let tree = publishable()?;
        let target = root().join("target/publish/target");
        // The packages of earlier versions.
        let _ = fs::remove_dir_all(target.join("package"));
        command.arg("--all-features").env("CARGO_TARGET_DIR", target).current_dir(tree.path());
        // Nobody debugs what is built here, or builds it again.
        command.env("CARGO_PROFILE_DEV_DEBUG", "0").env("CARGO_INCREMENTAL", "0");
    } else {
        command.args(["--no-verify", "--exclude-lockfile"]);
    }
    let args = announce(&command);
    let mut child =
        command.env("CARGO_TERM_COLOR", "never").stderr(Stdio::piped()).spawn().context("cannot run cargo")?;
    let mut warnings = Vec::new();
    for line in BufReader::new(child.stderr.take().context("cargo has no stderr")?).lines() {
        let line = line?;
        eprintln!("{line}");
        if is_unexpected(&line) {
            warnings.push(line);
        }
    }
    let status = child.wait()?;
    ensure!(status.success(), "cargo {args} failed ({status})");
    ensure!(warnings.is_empty(), "cargo package warns:\n{}", warnings.join("\n"));
    // cargo has compiled them one by one, if it verified them.
    if options.verify { Ok(()) } else { unpacked::check() }
}

/// A copy of the repository whose crates may be published. In the repository itself they may not, so that nobody
/// publishes one by mistake, but cargo takes no dependency from a package that may not be published.
fn publishable() -> Result<Tree> {
    const MANIFEST: &str = "Cargo.toml";
    let tree = Tree::copy("publish/tree")?;
    let text = fs::read_to_string(root().join(MANIFEST)).context("cannot read Cargo.toml")?;
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).context("the clock")?.as_secs();
    tree.write(MANIFEST, &publishable_manifest(&text, seconds)?)?;
    Ok(tree)
}

/// The manifest of the workspace with a patch version of its own: cargo keeps the sources of a version that it has
/// unpacked once, and would verify against those of the last time.
fn publishable_manifest(text: &str, patch: u64) -> Result<String> {
    let (mut is_publishable, mut has_version) = (false, false);
    let lines =
        text.lines().map(|line| match line.strip_prefix("version = \"").and_then(|line| line.strip_suffix('"')) {
            _ if line == "publish = false" => {
                is_publishable = true;
                "publish = true\n".to_owned()
            }
            Some(version) => {
                has_version = true;
                let minor = version.rsplit_once('.').map_or(version, |(minor, _)| minor);
                format!("version = \"{minor}.{patch}\"\n")
            }
            None => format!("{line}\n"),
        });
    let manifest = lines.collect();
    ensure!(is_publishable && has_version, "Cargo.toml has no line `publish = false` or `version = \"..\"`");
    Ok(manifest)
}

fn contains_files(name: &str) -> Result<()> {
    let output =
        cargo(["package", "--list", "--allow-dirty", "--package", name]).output().context("cannot run cargo")?;
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "cargo cannot list the package of {name}: {}", stderr.trim());
    let missing: Vec<&str> = FILES.into_iter().filter(|file| !stdout.lines().any(|line| line == *file)).collect();
    ensure!(missing.is_empty(), "the package of {name} does not contain {}", missing.join(", "));
    Ok(())
}

/// Returns whether the line is a warning that must not be there: for example of a file that the manifest names and the
/// package does not contain. Tests are left out of packages on purpose, because most need servers.
fn is_unexpected(line: &str) -> bool {
    line.starts_with("warning:") && !line.starts_with("warning: ignoring test `")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manifest_of_the_copy_may_be_published_and_has_a_version_of_its_own() {
        let text = "[workspace.package]\nversion = \"0.1.0\"\npublish = false\n[workspace.dependencies]\n\
                    idem-core = { path = \"idem-core\", version = \"0.1.0\" }\n";
        let expected = text.replacen("0.1.0", "0.1.7", 1).replace("publish = false", "publish = true");
        assert_eq!(publishable_manifest(text, 7).unwrap(), expected);
        assert!(publishable_manifest("[workspace]\n", 7).is_err());
    }

    #[test]
    fn a_missing_readme_is_unexpected_and_a_test_that_is_left_out_is_not() {
        assert!(is_unexpected("warning: readme `README.md` does not appear to exist (relative to `/idem`)."));
        assert!(!is_unexpected(
            "warning: ignoring test `tls` as `tests/tls.rs` is not included in the published package"
        ));
        assert!(!is_unexpected("    Packaged 29 files, 129.2KiB (39.1KiB compressed)"));
    }
}
