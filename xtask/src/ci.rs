//! `cargo xtask ci`: the checks of CI.

use std::thread;

use anyhow::{Result, anyhow};
use clap::Args;

use crate::cargo::{cargo, run};
use crate::services::Up;
use crate::{mutants, packages, test};

/// The feature sets of the facade that a user may select, each checked separately; the examples with the default ones, which
/// are SQLite alone.
const FEATURES: &[&[&str]] = &[
    &["--examples"],
    &["--no-default-features"],
    &["--no-default-features", "--features", "postgres"],
    &["--no-default-features", "--features", "protobuf"],
    &["--no-default-features", "--features", "page"],
    &["--no-default-features", "--features", "rabbitmq"],
    &["--no-default-features", "--features", "nats"],
    &["--no-default-features", "--features", "redis"],
    &["--no-default-features", "--features", "dynamodb"],
    &["--no-default-features", "--features", "sqs"],
    &["--no-default-features", "--features", "axum"],
    // With TLS, as everything else has built the C library; `--full` also builds it without.
    &["--no-default-features", "--features", "kafka-ssl,kafka-zstd"],
];

#[derive(Args)]
pub(crate) struct Options {
    /// Run the relays of an outbox, the payments at a provider, a minute of orphaned rows and all mutants, which takes longer
    /// than everything else. Otherwise only some of the mutants, which the commit selects.
    #[arg(long)]
    full: bool,
}

/// Runs the small campaign and some of the mutants. The campaign mostly waits, so the mutants are built beside it.
fn part_of_commit() -> Result<()> {
    let mutants = mutants::Options::of_commit()?;
    thread::scope(|scope| {
        let demo = scope.spawn(packages::small);
        let tried = mutants::run(&mutants);
        demo.join().map_err(|_| anyhow!("the demo panicked"))??;
        tried
    })
}

/// Measures how little orphaned rows keep other messages waiting, over a minute and beside nothing else: the same test is
/// short and lenient among the others.
fn minute_of_orphans(servers: &Up) -> Result<()> {
    let mut orphans =
        cargo(["test", "--workspace", "--all-features", "--test", "faults", "orphans", "--", "--nocapture"]);
    run(orphans.envs(servers.env.iter().cloned()).env("FAULTS_MINUTE", "1"))
}

/// Runs the cheap checks first. A warning is an error here, so that warnings do not accumulate.
pub(crate) fn run_all(options: &Options) -> Result<()> {
    mutants::run(&mutants::Options::check())?;
    packages::search(&["--small".to_owned()])?;
    idem_services::tools()?;
    thread::scope(|scope| {
        // The servers' packages come from the network, while the compiler has work.
        let installed = scope.spawn(idem_services::prepare);
        let linted = lint();
        installed.join().map_err(|_| anyhow!("the installation of the servers panicked"))??;
        linted
    })?;
    // All the following checks share the servers.
    let servers = Up::new()?;
    if options.full {
        packages::small()?;
        packages::small_run(&["--relay", "--messages", "300", "--kills", "3"])?;
        packages::small_run(&["external", "--messages", "300", "--kills", "3"])?;
        packages::small_run(&["redis", "--messages", "1000", "--kills", "3"])?;
        minute_of_orphans(&servers)?;
        mutants::run(&mutants::Options::default())?;
    } else {
        part_of_commit()?;
    }
    // Last, so that the output ends with that of `cargo test`.
    test::test(&test::Options::default(), || compile_as_users(options))
}

/// Checks format, lints and documentation.
fn lint() -> Result<()> {
    run(&mut cargo(["fmt", "--all", "--check"]))?;
    let everything = ["--workspace", "--all-features"];
    run(cargo(["clippy", "--all-targets"]).args(everything).args(["--", "-D", "warnings"]))?;
    run(cargo(["doc", "--no-deps"]).args(everything).env("RUSTDOCFLAGS", "-D warnings"))
}

/// Compiles the facade with each feature, as users do.
fn compile_as_users(options: &Options) -> Result<()> {
    let kafka: &[&str] = &["--no-default-features", "--features", "kafka"];
    for features in FEATURES.iter().chain(options.full.then_some(&kafka)) {
        run(cargo(["clippy", "--package", "idem-rs"]).args(*features).args(["--", "-D", "warnings"]))?;
    }
    Ok(())
}
