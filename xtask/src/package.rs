//! `cargo xtask package`: the packages of the published crates, as crates.io would receive them.

use std::io::{BufRead, BufReader};
use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use clap::Args;

use crate::cargo::{announce, cargo};

/// The published crates, each after its dependencies.
pub(crate) const CRATES: [&str; 7] =
    ["idem-core", "idem-macros", "idem-test", "idem-kafka", "idem-nats", "idem-rabbitmq", "idem-rs"];
/// The files that each package must contain.
const FILES: [&str; 3] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md"];

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Also resolve and compile each package as crates.io would deliver it. This fails while the manifests have
    /// `publish = false`: cargo takes no dependency from a package that may not be published.
    #[arg(long)]
    verify: bool,
}

/// Creates the packages in `target/package`.
pub(crate) fn check(options: &Options) -> Result<()> {
    for name in CRATES {
        contains_files(name)?;
    }
    let mut command = cargo(["package", "--allow-dirty"]);
    if !options.verify {
        command.args(["--no-verify", "--exclude-lockfile"]);
    }
    command.args(CRATES.iter().flat_map(|name| ["--package", *name]));
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
    Ok(())
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
    fn a_missing_readme_is_unexpected_and_a_test_that_is_left_out_is_not() {
        assert!(is_unexpected("warning: readme `README.md` does not appear to exist (relative to `/idem`)."));
        assert!(!is_unexpected(
            "warning: ignoring test `tls` as `tests/tls.rs` is not included in the published package"
        ));
        assert!(!is_unexpected("    Packaged 29 files, 129.2KiB (39.1KiB compressed)"));
    }
}
