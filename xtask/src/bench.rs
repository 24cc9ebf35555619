//! `cargo xtask bench` and `cargo xtask soak`: measurements against real servers, by the program in `benches`.

use std::process::Command;

use anyhow::{Context, Result};

use crate::cargo::{cargo, root, run};

/// Runs the measurement as a release build. Exits with the exit code of the measurement.
pub(crate) fn measure(before: &[&str], args: &[String]) -> Result<()> {
    idem_services::tools()?;
    run(&mut cargo(["build", "--release", "--package", "idem-bench", "--bins"]))?;
    let mut bench = Command::new(root().join("target/release/idem-bench"));
    let status = bench.args(before).args(args).status().context("cannot run the measurement")?;
    std::process::exit(status.code().unwrap_or(1))
}
