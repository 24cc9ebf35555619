//! `cargo xtask ci`: what CI runs.

use anyhow::Result;

use crate::cargo::{cargo, run};
use crate::services::Up;
use crate::{demo, mutants, test};

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

/// The cheap checks first. A warning is an error here, so that none becomes a habit.
pub(crate) fn run_all() -> Result<()> {
    mutants::run(&mutants::Options::check())?;
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
    test::test(&test::Options::default())?;
    demo::small()?;
    mutants::run(&mutants::Options::default())
}
