//! `cargo xtask ci`: what CI runs.

use anyhow::Result;
use clap::Args;

use crate::cargo::{cargo, run};
use crate::services::Up;
use crate::{circles, demo, layers, mutants, test};

/// What a user may ask of the facade, each alone.
const FEATURES: &[&[&str]] = &[
    &[],
    &["--no-default-features"],
    &["--no-default-features", "--features", "postgres"],
    &["--no-default-features", "--features", "sqlite"],
    &["--no-default-features", "--features", "rabbitmq"],
    &["--no-default-features", "--features", "nats"],
    &["--no-default-features", "--features", "kafka"],
];

#[derive(Args)]
pub(crate) struct Options {
    /// The small campaign of the demo and all mutants as well, which take about as long again.
    #[arg(long)]
    full: bool,
}

/// The cheap checks first. A warning is an error here, so that none becomes a habit.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    mutants::run(&mutants::Options::check())?;
    layers::check()?;
    circles::check()?;
    idem_services::tools()?;
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    let everything = ["--workspace", "--all-features"];
    run(cargo(["clippy", "--all-targets"]).args(everything).args(["--", "-D", "warnings"]))?;
    run(cargo(["doc", "--no-deps"]).args(everything).env("RUSTDOCFLAGS", "-D warnings"))?;
    for features in FEATURES {
        run(cargo(["clippy", "--package", "idem-rs"]).args(*features).args(["--", "-D", "warnings"]))?;
    }
    // All that follows shares the servers.
    let _servers = Up::new(false)?;
    if options.full {
        demo::small()?;
        mutants::run(&mutants::Options::default())?;
    }
    // Last, so that the last lines are those of `cargo test`.
    test::test(&test::Options::default())
}
