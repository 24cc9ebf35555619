//! `cargo xtask test`: runs every test against real servers.

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, root, run};
use crate::services::Up;

#[derive(Args, Default)]
pub(crate) struct Options {
    /// Leave the servers running.
    #[arg(long)]
    keep: bool,
    /// Arguments for `cargo test`; then only those tests run.
    #[arg(last = true)]
    args: Vec<String>,
}

/// The examples that end by themselves. They run as for a user: with default features and without servers.
const RUN: &[&str] = &["quickstart", "by_hand", "events", "ordering", "batch", "dead_letters", "http", "avro"];
/// The examples that are tests.
const TESTED: &[&str] = &["testing"];

/// Runs the examples, then the tests, so that the output ends with that of `cargo test`.
pub(crate) fn test(options: &Options) -> Result<()> {
    idem_services::prepare()?;
    idem_services::pooler()?;
    let servers = Up::new(options.keep)?;
    if options.args.is_empty() {
        examples()?;
    }
    // One failure must not hide others.
    let mut tests = cargo(["test", "--all-features", "--no-fail-fast"]);
    if !options.args.iter().take_while(|arg| *arg != "--").any(|arg| names_package(arg)) {
        tests.arg("--workspace");
    }
    run(tests.args(&options.args).envs(servers.env.iter().cloned()))
}

fn examples() -> Result<()> {
    let exists = |name: &&&str| root().join("examples").join(format!("{name}.rs")).exists();
    for name in RUN.iter().filter(exists) {
        run(&mut cargo(["run", "--example", name]))?;
    }
    for name in TESTED.iter().filter(exists) {
        run(&mut cargo(["test", "--example", name]))?;
    }
    Ok(())
}

fn names_package(arg: &str) -> bool {
    arg.starts_with("-p") || arg.starts_with("--package") || arg.starts_with("--manifest-path")
}
