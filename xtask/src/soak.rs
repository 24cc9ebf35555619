//! `cargo xtask soak`: whether a worker that runs for long grows, or loses a message.

use anyhow::Result;
use clap::Args;

use crate::measured::{BROKERS, finish, program, servers};

/// Run a worker on PostgreSQL and a broker at half of the load that it can take, with copies and failing handlers: a
/// line a minute, and a verdict on its memory, its connections, both tables and the messages.
///
/// Exit code 0: nothing grows, and no message is lost or has two effects. 1: something does. 2: the run was too short,
/// and proves nothing.
#[derive(Args)]
pub(crate) struct Options {
    /// How long it runs. The first minute measures the load; the first ten are not judged.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    minutes: u64,
    /// Where the messages come from.
    #[arg(long, default_value = "nats", value_parser = BROKERS)]
    broker: String,
}

/// Runs the soak, on the servers that the environment names, otherwise on servers started for it.
pub(crate) fn soak(options: &Options) -> Result<()> {
    let mut program = program()?;
    program.args(["soak", "--minutes", &options.minutes.to_string(), "--broker", &options.broker]);
    let servers = servers(&mut program, &[&options.broker])?;
    finish(program, servers)
}
