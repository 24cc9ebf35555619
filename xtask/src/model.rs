//! `cargo xtask model`: searches the model of the protocol (`tests/model`).

use anyhow::{Context, Result};
use clap::Args;

use crate::cargo::{cargo, run};

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Search worlds with fewer failures, as CI does.
    #[arg(long)]
    small: bool,
    /// Also print the shortest way to the violation of each broken rule.
    #[arg(long)]
    traces: bool,
}

impl Options {
    /// The search that CI makes.
    pub(crate) fn small() -> Self {
        Self { small: true, traces: false }
    }
}

/// Prints one line for each world and each broken rule. The error is that a rule does not hold, or is not needed.
pub(crate) fn search(options: &Options) -> Result<()> {
    let mut command = cargo(["run", "--quiet", "--release", "--package", "idem-model", "--"]);
    let flags = [(options.small, "--small"), (options.traces, "--traces")];
    command.args(flags.into_iter().filter(|(given, _)| *given).map(|(_, flag)| flag));
    run(&mut command).context("the model and the rules do not agree")
}
