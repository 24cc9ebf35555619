//! Kills workers, injects server faults, and prints a ledger of the outcome of each message: `cargo xtask demo --all`,
//! or one run, `cargo xtask demo rabbitmq|nats|kafka`. With `--relay`, the same with relays of an outbox.
//!
//! | file | contents |
//! |---|---|
//! | `campaign` | the runs of a command, one line each |
//! | `harness` | a run: publishes, kills, breaks, and waits until all is settled |
//! | `disruptions` | all that is done to processes and servers, and when |
//! | `processes`, `servers` | the processes and the servers |
//! | `hold` | signals to the processes: keep work in hand, end between commit and ack |
//! | `journal` | the journal of a process, which survives a kill |
//! | `worker`, `watched` | the process that is killed; its instrumented source, with the failpoint between commit and ack |
//! | `mode` | how much there is to do, and how workers consume |
//! | `plan`, `fate` | the messages; what a handler does with one, and the required outcome |
//! | `handler`, `careless` | the handlers: ordinary and careless actions, and what they write |
//! | `run`, `tables`, `verdict`, `ledger` | a run of workers; queries of the database; the outcome of each message; the totals |
//! | `relay` | the run of the outbox |
//! | `external` | the run of external calls |

mod campaign;
mod careless;
mod disruptions;
mod external;
mod fate;
mod handler;
mod harness;
mod hold;
mod journal;
mod ledger;
mod mode;
mod plan;
mod processes;
mod relay;
mod run;
mod servers;
mod tables;
mod verdict;
mod watched;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};

use crate::campaign::{BROKERS, Run, play};
use crate::mode::{Load, Mode};
use crate::worker::Role;

#[derive(Parser)]
#[command(name = "cargo xtask demo", about = "Workers that are killed, and a ledger of what became of each message.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run every broker in every mode, and print one line each.
    #[command(long_flag = "all")]
    All {
        /// A few hundred messages, a few kills and one server fault per run.
        #[arg(long)]
        small: bool,
        /// Only the runs whose lines begin with this, for example "nats batch".
        #[arg(long, default_value = "")]
        only: String,
        /// The seed; the same seed gives the same random choices.
        #[arg(long)]
        seed: Option<u64>,
    },
    /// Run the outbox on every broker, and print one line each.
    #[command(long_flag = "relay")]
    Relay(Common),
    /// PostgreSQL and RabbitMQ.
    Rabbitmq(Options),
    /// PostgreSQL and NATS JetStream.
    Nats(Options),
    /// PostgreSQL and Apache Kafka.
    Kafka(Options),
    /// Pay for orders at a provider outside of the transaction, and kill the workers.
    External(Common),
    /// Run one of the processes.
    #[command(hide = true)]
    Worker {
        role: Role,
        broker: String,
        #[arg(long)]
        journal: PathBuf,
        #[arg(long)]
        provider: Option<SocketAddr>,
        #[command(flatten)]
        mode: Mode,
    },
}

/// The settings of one run.
#[derive(Debug, Clone, clap::Args)]
struct Options {
    /// Kill the relays of an outbox instead: events, a worker that stages a message for each, relays, and a second
    /// consumer.
    #[arg(long)]
    relay: bool,
    #[command(flatten)]
    common: Common,
}

/// The settings of one run, of workers or of relays.
#[derive(Debug, Clone, clap::Args)]
struct Common {
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    mode: Mode,
    /// The seed; the same seed gives the same random choices.
    #[arg(long)]
    seed: Option<u64>,
}

impl Common {
    fn run(&self, broker: &'static str, relay: bool) -> Run {
        Run::new(broker, self.mode, relay, &self.load, self.seed.unwrap_or_else(any))
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = work(Arguments::parse().command).await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // One line, without the backtrace that `RUST_BACKTRACE` would add.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn work(command: Command) -> Result<()> {
    match command {
        Command::All { small, only, seed } => {
            let mut runs = Run::all(small, seed.unwrap_or_else(any));
            runs.retain(|run| run.name().starts_with(&only));
            play(&runs).await
        }
        Command::Relay(options) => play(&BROKERS.map(|broker| options.run(broker, true))).await,
        Command::Rabbitmq(options) => play(&[options.common.run(RabbitMq::NAME, options.relay)]).await,
        Command::Nats(options) => play(&[options.common.run(Nats::NAME, options.relay)]).await,
        Command::Kafka(options) => play(&[options.common.run(Kafka::NAME, options.relay)]).await,
        Command::External(Common { load, mode, seed }) => external::run(&load, mode, seed.unwrap_or_else(any)).await,
        Command::Worker { role, broker, journal, provider, mode } => match broker.as_str() {
            RabbitMq::NAME => worker::run::<RabbitMq>(role, &journal, mode, provider).await,
            Nats::NAME => worker::run::<Nats>(role, &journal, mode, provider).await,
            Kafka::NAME => worker::run::<Kafka>(role, &journal, mode, provider).await,
            other => bail!("there is no broker {other}"),
        },
    }
}

fn any() -> u64 {
    fastrand::u64(..1_000_000)
}
