//! `cargo xtask demo`: kills workers, injects server faults, and prints a ledger.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use clap::Args;

use crate::cargo::{cargo, root, run};

#[derive(Args)]
pub(crate) struct Options {
    /// `--all [--small] [--only LINE | --turn N] [--seed N]`, or `rabbitmq|nats|kafka [--inbox] [--batch N] [--whole]
    /// [--messages N] [--duplicates PERCENT] [--kills N] [--workers N] [--seed N]`. With `--relay` behind a broker, or
    /// alone for all of them, the relays of an outbox are killed instead.
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
    args: Vec<String>,
}

/// Runs the demo. The demo is a separate program, so that the other chores do not build idem. It is a release build,
/// because it reports its throughput. It starts separate servers, which it freezes and crashes.
pub(crate) fn demo(options: &Options) -> Result<()> {
    idem_services::tools()?;
    idem_services::prepare()?;
    run(cargo(["run", "--release", "--package", "idem-demo", "--"]).args(&options.args))
}

/// Runs the campaign with a few messages in one mode of each broker, chosen by this number. A run takes about 20 seconds.
pub(crate) fn small_of(number: u64) -> Result<()> {
    small(&["--turn", &number.to_string()])
}

/// Runs the whole campaign with a few messages each, or its lines that these arguments choose. It uses the build profile
/// of the tests, so that little is rebuilt.
pub(crate) fn small(chosen: &[&str]) -> Result<()> {
    idem_services::prepare()?;
    run(&mut cargo(["build", "--workspace", "--all-features", "--bin", "idem-demo"]))?;
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut demo = Command::new(target.join("debug").join("idem-demo"));
    demo.args(["--all", "--small"]).args(chosen);
    eprintln!("\n$ idem-demo --all --small {}", chosen.join(" "));
    let status = demo.status().context("cannot run the demo")?;
    if !status.success() {
        bail!("idem-demo --all --small {} failed ({status})", chosen.join(" "));
    }
    Ok(())
}
