//! The command line of a run.

use std::fmt;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::case::Broker;

/// `cargo xtask bench` starts the servers, builds the peers and runs this program.
#[derive(Parser)]
#[command(name = "idem-bench")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) what: What,
}

#[derive(Subcommand)]
pub(crate) enum What {
    /// One message per transaction, compared to the handwritten loop and pgbench.
    Single {
        /// Multiplies the number of messages.
        #[arg(default_value_t = 1.0)]
        scale: f64,
    },
    /// The worker with `.inbox()`, compared to the same worker without it.
    Inbox {
        /// Multiplies the number of messages.
        #[arg(default_value_t = 1.0)]
        scale: f64,
    },
    /// External calls at once, with few connections.
    Calls {
        /// Multiplies the number of messages.
        #[arg(default_value_t = 1.0)]
        scale: f64,
    },
    /// Three workers on one store, with fewer and fewer connections.
    Connections {
        /// Multiplies the number of messages.
        #[arg(default_value_t = 1.0)]
        scale: f64,
    },
    /// All sides, in turns.
    All(Options),
    /// The framework alone: a store and a source that do nothing.
    Framework,
    /// From publish to commit, from each broker, compared to a loop by hand.
    Latency(Pace),
    /// The relay of an outbox, to each broker, compared to loops that publish.
    Relay(Relayed),
    /// A worker that has nothing to do.
    Idle(Idle),
    /// A worker at half of the load that it can take, for a long time.
    Soak(Soak),
    /// The worker of the soak, which is a separate process, so that its memory is its own.
    #[command(hide = true)]
    SoakWorker {
        #[arg(long)]
        broker: Broker,
    },
}

/// The load of a measurement of latency.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Pace {
    /// Messages per second.
    #[arg(long, default_value_t = 1000.0)]
    pub(crate) rate: f64,
    /// Seconds that each side runs in each round.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Rounds, in addition to the first one, which only warms up.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Only this broker.
    #[arg(long)]
    pub(crate) broker: Option<Broker>,
}

/// The work of a measurement of the relay.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Relayed {
    /// Messages of each run as fast as possible.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) messages: usize,
    /// Name and program of the relay that RabbitMQ is also measured with; without a program, it did not build.
    #[arg(long, value_parser = peer)]
    pub(crate) peer: Option<(String, Option<PathBuf>)>,
    /// The runs at a fixed rate, the rounds and the broker.
    #[command(flatten)]
    pub(crate) pace: Pace,
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Idle {
    /// Seconds of each measurement. The worker has tasks that run once a minute.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) seconds: f64,
    /// Where its messages would come from; can be given several times.
    #[arg(long, default_values = ["memory", "nats"])]
    pub(crate) source: Vec<IdleSource>,
}

/// The source of an idle worker.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum IdleSource {
    Memory,
    #[value(name = "rabbitmq")]
    RabbitMq,
    Nats,
    Kafka,
}

impl fmt::Display for IdleSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Memory => "memory",
            Self::RabbitMq => "RabbitMQ",
            Self::Nats => "NATS",
            Self::Kafka => "Kafka",
        })
    }
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Soak {
    /// How long it runs. The first ten minutes are not judged.
    #[arg(long, default_value_t = 60)]
    pub(crate) minutes: usize,
    /// Where the messages come from.
    #[arg(long, default_value = "nats")]
    pub(crate) broker: Broker,
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Options {
    /// Seconds that each side runs in each round.
    #[arg(long, default_value_t = 1.0)]
    pub(crate) seconds: f64,
    /// Rounds, in addition to the first one, which only warms up.
    #[arg(long, default_value_t = 7)]
    pub(crate) rounds: usize,
    /// Claims in the largest table.
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) rows: usize,
    /// Name and program of a peer; a peer without a program did not build.
    #[arg(long, value_parser = peer)]
    pub(crate) peer: Vec<(String, Option<PathBuf>)>,
    /// Only the sides whose names contain this; can be given several times.
    #[arg(long)]
    pub(crate) only: Vec<String>,
    /// The brokers are left out.
    #[arg(long)]
    pub(crate) no_brokers: bool,
    /// The server was started for this run, so its checkpoints may be moved out of the measured time.
    #[arg(long)]
    pub(crate) own_server: bool,
    /// The command line, for the output.
    #[arg(long, default_value = "cargo xtask bench")]
    pub(crate) command: String,
}

impl Options {
    /// Returns whether this is to be measured.
    pub(crate) fn wants(&self, label: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| label.contains(only))
    }
}

fn peer(text: &str) -> Result<(String, Option<PathBuf>), String> {
    let (name, program) = text.split_once('=').ok_or("a peer is name=program")?;
    Ok((name.to_owned(), (!program.is_empty()).then(|| program.into())))
}
