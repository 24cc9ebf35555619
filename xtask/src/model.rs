//! `cargo xtask model`: searches the model of the protocol (`tests/model`).

use anyhow::{Context, Result};

use crate::cargo::{cargo, run};

/// Prints one line for each world and each broken rule. The error is that a rule does not hold, or is not needed.
///
/// The arguments are those of the model: `--small` for worlds with fewer failures, as CI searches them, and `--traces` for
/// the shortest way to the violation of each broken rule.
pub(crate) fn search(args: &[String]) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--package", "idem-model", "--"]);
    run(command.args(args)).context("the model and the rules do not agree")
}
