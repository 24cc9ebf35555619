//! `cargo xtask bench`: side-by-side measurements against real servers.

use anyhow::{Context, Result};
use clap::Subcommand;

use crate::cargo::cargo;

#[derive(Subcommand)]
pub(crate) enum What {
    /// Throughput of one message per transaction, against a loop written by hand with sqlx, and pgbench.
    ///
    /// Exit code 0: idem has at least 0.95 of the loop with 16 in flight. 1: it has less. 2: the loop has less than 0.6
    /// of pgbench, so that the run proves nothing.
    Single {
        /// Multiplies the number of messages, for longer or shorter rounds.
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
    /// Throughput and latency of `.inbox()`, beside the same worker without.
    Inbox {
        /// Multiplies the number of messages, for longer or shorter rounds.
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
}

/// Runs the measurement as a release build, on the server that `DATABASE_URL` names, else on one that is started for it.
/// Ends with the exit code of the measurement.
pub(crate) fn run(what: &What) -> Result<()> {
    let (name, scale) = match what {
        What::Single { scale } => ("single", scale),
        What::Inbox { scale } => ("inbox", scale),
    };
    let mut command = cargo(["run", "--release", "--quiet", "--package", "idem-bench", "--", name, &scale.to_string()]);
    // Built before the server is started, so that nothing but the measurement runs beside it.
    crate::cargo::run(&mut cargo(["build", "--release", "--package", "idem-bench"]))?;
    let named = std::env::var("DATABASE_URL").is_ok_and(|url| !url.is_empty());
    let server = if named { None } else { Some(server()?) };
    if let Some(server) = &server {
        command.env("DATABASE_URL", server.url());
    }
    let status = command.status().context("cannot run cargo")?;
    // Ended here, since leaving the process drops nothing.
    drop(server);
    std::process::exit(status.code().unwrap_or(1))
}

/// A server for this measurement alone, so that no test that runs meanwhile writes to it.
fn server() -> Result<idem_services::Instance> {
    idem_services::prepare()?;
    eprintln!("\nstarting a PostgreSQL for this measurement");
    idem_services::Postgres::start()
}
