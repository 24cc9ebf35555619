//! Kills workers, injects server faults, and prints a ledger of the outcome of each message: `cargo xtask demo --all`,
//! or one run, `cargo xtask demo rabbitmq|nats|kafka|sqs`. With `--relay`, the same with relays of an outbox.
//!
//! | file | contents |
//! |---|---|
//! | `campaign` | the runs of a command, one line each; how much there is to do, and how workers consume |
//! | `harness` | a run: publishes, kills, breaks, and waits until all is settled |
//! | `disruptions` | all that is done to processes and servers, and when |
//! | `processes` | the processes and the servers |
//! | `hold` | signals to the processes: keep work in hand, end between commit and ack |
//! | `journal` | the journal of a process, which survives a kill |
//! | `worker`, `watched` | the process that is killed; its instrumented source or sink, with the failpoint |
//! | `plan` | the messages; what a handler does with one, and the required outcome |
//! | `handler` | the handlers: ordinary and careless actions, and what they write |
//! | `run`, `tables`, `verdict` | a run of workers and its totals; queries of the database; the outcome of each message |
//! | `relay` | the run of the outbox |
//! | `external` | the run of external calls |
//! | `requests` | the run of HTTP requests |
//! | `redis` | the runs of workers that deduplicate in Redis |
//! | `restarted` | a process of these two, which is killed and started again |

mod campaign;
mod disruptions;
mod external;
mod handler;
mod harness;
mod hold;
mod journal;
mod plan;
mod processes;
mod redis;
mod relay;
mod requests;
mod restarted;
mod run;
mod tables;
mod verdict;
mod watched;
mod worker;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use idem_brokers::{Broker, Kafka, Nats, RabbitMq, Sqs};

use crate::campaign::{BROKERS, Load, Mode, Run, play};
use crate::redis::worker::Consumer;
use crate::worker::Role;

/// Workers that are killed, and a ledger of what became of each message.
#[derive(Parser)]
#[command(name = "cargo xtask demo", arg_required_else_help = true)]
struct Arguments {
    /// One broker, or `external`: pay for orders at a provider outside of the transaction; or `requests`: HTTP requests that are
    /// repeated; or `redis`: workers that deduplicate there.
    #[arg(value_parser = ["rabbitmq", "nats", "kafka", "sqs", "external", "requests", "redis"])]
    what: Option<String>,
    /// Run every broker in every mode, and print one line each.
    #[arg(long)]
    all: bool,
    /// With `--all`: a few hundred messages, a few kills and one server fault per run.
    #[arg(long)]
    small: bool,
    /// Only the runs whose lines begin with this, for example "nats batch".
    #[arg(long, default_value = "")]
    only: String,
    /// Kill the relays of an outbox instead: events, a worker that stages a message for each, relays, and a second
    /// consumer.
    #[arg(long)]
    relay: bool,
    /// With `requests`: how many.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    requests: u64,
    #[command(flatten)]
    load: Load,
    #[command(flatten)]
    mode: Mode,
    /// The seed; the same seed gives the same random choices.
    #[arg(long)]
    seed: Option<u64>,
    /// Run one of the processes, which writes to this journal.
    #[arg(long, hide = true, requires = "journal")]
    role: Option<Role>,
    #[arg(long, hide = true)]
    journal: Option<PathBuf>,
    #[arg(long, hide = true)]
    provider: Option<SocketAddr>,
    /// Run the service of requests at this port.
    #[arg(long, hide = true)]
    port: Option<u16>,
    /// Run one of the processes that deduplicate in Redis.
    #[arg(long, hide = true)]
    consumer: Option<Consumer>,
}

#[tokio::main]
async fn main() -> ExitCode {
    let done = work(Arguments::parse()).await;
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // One line, without the backtrace that `RUST_BACKTRACE` would add.
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn work(arguments: Arguments) -> Result<()> {
    if let Some(consumer) = arguments.consumer {
        return redis::worker::run(consumer).await;
    }
    let Arguments { what, all, small, only, relay, requests, load, mode, seed, role, journal, provider, port, .. } =
        arguments;
    let seed = seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let is_asked = |broker: &&str| what.as_deref().is_none_or(|what| what == *broker);
    if let (Some(role), Some(journal)) = (role, journal) {
        return match what.as_deref() {
            Some(RabbitMq::NAME) => worker::run::<RabbitMq>(role, &journal, mode, provider).await,
            Some(Nats::NAME) => worker::run::<Nats>(role, &journal, mode, provider).await,
            Some(Sqs::NAME) => worker::run::<Sqs>(role, &journal, mode, provider).await,
            _ => worker::run::<Kafka>(role, &journal, mode, provider).await,
        };
    }
    if let Some(port) = port {
        return requests::service::serve(port).await;
    }
    if what.as_deref() == Some("redis") {
        return redis::run(&load, seed).await;
    }
    if what.as_deref() == Some("requests") {
        return requests::run(requests, load.kills, seed).await;
    }
    if what.as_deref() == Some("external") {
        return external::run(&load, mode, seed).await;
    }
    let asked = BROKERS.into_iter().filter(is_asked);
    let mut runs = match all {
        true => Run::all(small, seed),
        false => asked.map(|broker| Run::new(broker, mode, relay, &load, seed)).collect(),
    };
    runs.retain(|run| run.name().starts_with(&only));
    play(&runs).await
}
