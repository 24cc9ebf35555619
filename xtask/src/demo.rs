//! `cargo xtask demo`: kills workers, injects server faults, and prints a ledger.

use std::path::PathBuf;
use std::process::Command;
use std::thread;

use anyhow::{Context, Result, anyhow, bail};
use clap::Args;

use crate::cargo::{cargo, root, run};

#[derive(Args)]
pub(crate) struct Options {
    /// `--all [--small] [--only LINE] [--seed N]`, or `rabbitmq|nats|kafka [--inbox] [--batch N] [--whole]
    /// [--messages N] [--duplicates PERCENT] [--kills N] [--workers N] [--seed N]`. With `--relay` behind a broker, or
    /// alone for all of them, the relays of an outbox are killed instead. `external [--messages N] [--kills N] [--seed N]`
    /// pays at a provider.
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

/// Runs the campaign with a few messages in each mode, on all brokers at once: a run takes about 30 seconds, most of which
/// it waits.
pub(crate) fn small() -> Result<()> {
    build()?;
    thread::scope(|scope| {
        let start = |broker| scope.spawn(move || tested(&["--all", "--small", "--only", broker]));
        let brokers = ["rabbitmq", "nats", "kafka"].map(start);
        brokers.into_iter().try_for_each(|broker| broker.join().map_err(|_| anyhow!("the demo panicked"))?)
    })
}

/// Runs the outbox on each broker with a few messages. A run takes about a minute on a busy machine: two faults of
/// servers, and a lease for each killed relay.
pub(crate) fn small_relays() -> Result<()> {
    build()?;
    tested(&["--relay", "--messages", "300", "--kills", "3"])
}

/// Pays at a provider, with a few messages and a few killed workers.
pub(crate) fn small_external() -> Result<()> {
    build()?;
    tested(&["external", "--messages", "300", "--kills", "3"])
}

/// Builds the demo in the build profile of the tests, so that little is rebuilt.
fn build() -> Result<()> {
    idem_services::prepare()?;
    run(&mut cargo(["build", "--workspace", "--all-features", "--bin", "idem-demo"]))
}

/// Runs the demo that was built.
fn tested(args: &[&str]) -> Result<()> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from);
    let mut demo = Command::new(target.join("debug").join("idem-demo"));
    eprintln!("\n$ idem-demo {}", args.join(" "));
    let status = demo.args(args).status().context("cannot run the demo")?;
    if !status.success() {
        bail!("idem-demo {} failed ({status})", args.join(" "));
    }
    Ok(())
}
