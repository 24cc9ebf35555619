//! `cargo xtask demo`: workers that are killed, and a ledger.

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, run};
use crate::services::Up;

#[derive(Args)]
pub(crate) struct Options {
    /// `rabbitmq|nats|kafka [--inbox] [--batch N] [--messages N] [--duplicates PERCENT] [--kills N] [--workers N] [--seed N]`.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// The demo is a program of its own, so that the other chores need not build idem first. It is built for speed, since it
/// says how fast it was.
pub(crate) fn demo(options: &Options) -> Result<()> {
    let servers = Up::new(false)?;
    let mut demo = cargo(["run", "--release", "--package", "idem-demo", "--"]);
    run(demo.args(&options.args).envs(servers.env.iter().cloned()))
}
