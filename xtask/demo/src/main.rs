//! Kills workers, injects server faults, and prints a ledger of the outcome of each message: `cargo xtask demo --all`,
//! or one run, `cargo xtask demo rabbitmq|nats|kafka`. With `--relay`, the same with relays of an outbox.
//!
//! | file | contents |
//! |---|---|
//! | `fate` | what a handler does with a message, and the required outcome |
//! | `plan`, `supply` | the messages, the order in which they are published, and when |
//! | `handler`, `careless`, `effects` | the handlers: ordinary and careless actions, and what they write |
//! | `mode`, `worker` | the process that is killed |
//! | `watched` | its instrumented source, with the failpoint between commit and ack |
//! | `journal` | the journal of a process, which survives a kill |
//! | `processes` | the worker processes |
//! | `hold` | signals to them: keep work in hand, end between commit and ack |
//! | `disruptions`, `due` | all that is done to workers and servers, and when |
//! | `kills` | when each of them is killed |
//! | `moves` | when a worker joins, and when one leaves |
//! | `servers`, `faults` | the servers, and their faults |
//! | `tables` | queries of the database |
//! | `verdict`, `ledger` | the outcome of each message, and the totals |
//! | `load` | the amount of work |
//! | `run`, `campaign` | one complete run, and one for each broker and mode |
//! | `relay` | the run of the outbox |
//! | `external` | the run of external calls |

mod campaign;
mod careless;
mod disruptions;
mod due;
mod effects;
mod external;
mod fate;
mod faults;
mod handler;
mod hold;
mod journal;
mod kills;
mod ledger;
mod load;
mod mode;
mod moves;
mod plan;
mod processes;
mod relay;
mod run;
mod servers;
mod supply;
mod tables;
mod verdict;
mod watched;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Result, bail};
use clap::{Parser, Subcommand};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};

use crate::campaign::Campaign;
use crate::faults::Fault;
use crate::load::Load;
use crate::mode::Mode;
use crate::relay::Link;
use crate::servers::Servers;

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
        #[arg(long)]
        only: Option<String>,
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
    External(external::Settings),
    /// Run one of the workers that pay.
    #[command(hide = true)]
    Payer { how: external::How, provider: std::net::SocketAddr },
    /// Run one of the workers.
    #[command(hide = true)]
    Worker {
        broker: String,
        #[arg(long)]
        journal: PathBuf,
        #[command(flatten)]
        mode: Mode,
    },
    /// Run one of the processes of the outbox.
    #[command(hide = true)]
    Link {
        link: Link,
        broker: String,
        #[arg(long)]
        journal: PathBuf,
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
    /// Returns the settings of a run of the outbox.
    fn relay(&self) -> relay::Settings<'_> {
        relay::Settings { load: &self.load, mode: self.mode, seed: self.seed.unwrap_or_else(any) }
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
            let load = match small {
                true => Load { messages: 300, duplicates: 20, kills: Some(2), workers: 2 },
                false => Load { messages: 4000, duplicates: 20, kills: None, workers: 3 },
            };
            campaign::all(&Campaign { load, only, small, seed: seed.unwrap_or_else(any) }).await
        }
        Command::Relay(options) => relay::all(&options.relay()).await,
        Command::Rabbitmq(options) => one::<RabbitMq>(&options).await,
        Command::Nats(options) => one::<Nats>(&options).await,
        Command::Kafka(options) => one::<Kafka>(&options).await,
        Command::External(settings) => external::run(&settings, any()).await,
        Command::Payer { how, provider } => external::pay(how, provider).await,
        Command::Worker { broker, journal, mode } => match broker.as_str() {
            RabbitMq::NAME => worker::run::<RabbitMq>(&journal, mode).await,
            Nats::NAME => worker::run::<Nats>(&journal, mode).await,
            Kafka::NAME => worker::run::<Kafka>(&journal, mode).await,
            other => bail!("there is no broker {other}"),
        },
        Command::Link { link, broker, journal, mode } => match broker.as_str() {
            RabbitMq::NAME => relay::run_link::<RabbitMq>(link, &journal, mode).await,
            Nats::NAME => relay::run_link::<Nats>(link, &journal, mode).await,
            Kafka::NAME => relay::run_link::<Kafka>(link, &journal, mode).await,
            other => bail!("there is no broker {other}"),
        },
    }
}

/// Runs once, and prints a table.
async fn one<B: Broker>(Options { relay, common: options }: &Options) -> Result<()> {
    if *relay {
        return relay::one::<B>(&options.relay()).await;
    }
    let seed = options.seed.unwrap_or_else(any);
    println!("seed {seed}");
    let mut servers = Servers::start::<B>().await?;
    let faults = [Fault::Freeze, Fault::Crash, Fault::Restart];
    let ledger = run::run::<B>(&options.load, options.mode, &faults, seed, &mut servers).await?;
    println!("\n{ledger}");
    let wrong: Vec<String> = ledger.wrong().collect();
    if !wrong.is_empty() {
        bail!("not all is as it must be:\n{}", wrong.join("\n"));
    }
    Ok(())
}

fn any() -> u64 {
    fastrand::u64(..1_000_000)
}
