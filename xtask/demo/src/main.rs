//! Workers that are killed, and a ledger of what became of each message: `cargo xtask demo rabbitmq|nats|kafka`.
//!
//! | file | what |
//! |---|---|
//! | `plan` | which messages there are, and what is to become of each |
//! | `handler` | the handler, an ordinary one |
//! | `worker` | the process that is killed |
//! | `watched` | its source, watched, with the failpoint between commit and ack |
//! | `journal` | what a process wrote about itself, which a kill does not take away |
//! | `crew` | the processes |
//! | `kills` | when which of them is killed |
//! | `moves` | when a worker is added, and when one leaves |
//! | `tables` | what the database says |
//! | `ledger` | the sum, and the verdict |
//! | `run` | all of it in order |

mod crew;
mod handler;
mod journal;
mod kills;
mod ledger;
mod moves;
mod plan;
mod run;
mod tables;
mod watched;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};

#[derive(Parser)]
#[command(name = "cargo xtask demo", about = "Workers that are killed, and a ledger of what became of each message.")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// PostgreSQL and RabbitMQ.
    Rabbitmq(Options),
    /// PostgreSQL and NATS JetStream.
    Nats(Options),
    /// PostgreSQL and Apache Kafka.
    Kafka(Options),
    /// One of the workers.
    #[command(hide = true)]
    Worker {
        broker: String,
        #[arg(long)]
        journal: PathBuf,
        #[command(flatten)]
        mode: Mode,
    },
}

/// What to do, and how often.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Options {
    /// How many messages are made.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(1..=10_000_000))]
    messages: u64,
    /// How many of 100 are published twice.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=100))]
    duplicates: u64,
    /// How often a worker is killed, a part of it between commit and ack.
    #[arg(long, default_value_t = 5)]
    kills: usize,
    /// How many workers run at a time.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=16))]
    workers: u64,
    #[command(flatten)]
    mode: Mode,
    /// What is random is the same again for the same number.
    #[arg(long)]
    seed: Option<u64>,
}

/// How the workers take messages.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Mode {
    /// Let the workers store each message, ack it, and run it from the inbox.
    #[arg(long)]
    inbox: bool,
    /// Let the workers take so many messages together, in one transaction.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    batch: u16,
}

/// Where the servers are. `cargo xtask` sets it.
#[derive(Debug, Clone)]
pub(crate) struct Servers {
    database: String,
    broker: String,
}

impl Servers {
    fn of<B: Broker>() -> Result<Self> {
        use anyhow::Context;
        let read = |name| std::env::var(name).with_context(|| format!("{name} is not set: run cargo xtask demo"));
        Ok(Self { database: read("DATABASE_URL")?, broker: read(B::VARIABLE)? })
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
        Command::Rabbitmq(options) => run::demo::<RabbitMq>(&options).await,
        Command::Nats(options) => run::demo::<Nats>(&options).await,
        Command::Kafka(options) => run::demo::<Kafka>(&options).await,
        Command::Worker { broker, journal, mode } => match broker.as_str() {
            RabbitMq::NAME => worker::run::<RabbitMq>(&journal, mode).await,
            Nats::NAME => worker::run::<Nats>(&journal, mode).await,
            Kafka::NAME => worker::run::<Kafka>(&journal, mode).await,
            other => anyhow::bail!("there is no broker {other}"),
        },
    }
}
