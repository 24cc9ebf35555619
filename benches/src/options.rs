//! The command line of a run.

use std::collections::BTreeSet;

use clap::{Parser, Subcommand};

use crate::plan::{self, Broker, Case};

/// Measure idem and everything it is compared to, in turns, and print a table.
///
/// Servers that the environment does not name are started. Exit code 0: all required thresholds are met. 1: one is not.
/// 2: the run proves nothing: messages were not committed at the rate, or the soak was too short.
#[derive(Parser)]
#[command(name = "cargo xtask bench", args_conflicts_with_subcommands = true)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub(crate) what: Option<What>,
    #[command(flatten)]
    pub(crate) all: Options,
}

#[derive(Subcommand)]
pub(crate) enum What {
    /// External calls: 100 of 50 ms at once, with 20 connections.
    Calls,
    /// The framework alone, with a store and a source that do nothing: time and allocations.
    Framework,
    /// HTTP requests in the layer, 16 at once, compared to a handler with a transaction of its own; and their repeats.
    Requests,
    /// A worker that deduplicates in Redis, compared to one with PostgreSQL, and to a loop that calls the same scripts.
    Redis,
    /// The relay of an outbox on each broker, compared to loops that publish: messages per second, also with one key and
    /// beside open transactions, and the time from commit to confirm at a fixed rate.
    Relay(Relayed),
    /// A worker that has nothing to do: transactions per second, and processor time.
    Idle(Idle),
    /// What somebody on call waits for, over millions of rows: answers of the operator, of `idem` and of its page, and replays.
    Operator(Operator),
    /// A worker at half of the load that it can take, for a long time.
    Soak(Soak),
    /// The worker of the soak, which is a separate process, so that its memory is its own.
    #[command(hide = true)]
    SoakWorker {
        #[arg(long)]
        broker: Broker,
    },
}

/// The work of a measurement of the relay.
#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Relayed {
    /// Messages of each run as fast as possible.
    #[arg(long, default_value_t = 200_000)]
    pub(crate) messages: usize,
    /// Messages that are deleted first, beside open transactions, so that none of these rows can be removed.
    #[arg(long, default_value_t = 600_000)]
    pub(crate) deleted: usize,
    /// Seconds of each run at a fixed rate.
    #[arg(long, default_value_t = 10.0)]
    pub(crate) seconds: f64,
    /// Rounds, in addition to the first one, which only warms up.
    #[arg(long, default_value_t = 5)]
    pub(crate) rounds: usize,
    /// Only this broker; can be given several times.
    #[arg(long, value_enum, default_values_t = [Broker::RabbitMq, Broker::Nats, Broker::Kafka])]
    pub(crate) broker: Vec<Broker>,
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Idle {
    /// Seconds of each measurement. The worker has tasks that run once a minute.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) seconds: f64,
    /// Where its messages would come from, beside memory; can be given several times.
    #[arg(long, value_enum, default_values_t = [Broker::Nats])]
    pub(crate) broker: Vec<Broker>,
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Operator {
    /// Claims of processed messages, which stay for a later run.
    #[arg(long, default_value_t = 10_000_000)]
    pub(crate) claims: usize,
    /// Rows of the inbox, which each run makes anew.
    #[arg(long, default_value_t = 1_000_000)]
    pub(crate) rows: usize,
    /// How often each answer is measured, behind the first time.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) rounds: u64,
    /// Seconds for which the statements of two workers are counted, which write every ten seconds.
    #[arg(long, default_value_t = 60.0)]
    pub(crate) seconds: f64,
}

#[derive(clap::Args, Debug, Clone)]
pub(crate) struct Soak {
    /// How long it runs. The first minute measures the load; the first ten are not judged.
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) minutes: u64,
    /// Where the messages come from.
    #[arg(long, value_enum, default_value_t = Broker::Nats)]
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
    /// Only the sides whose names contain this; can be given several times. Tables that they do not use are not filled.
    #[arg(long)]
    pub(crate) only: Vec<String>,
    /// Without RabbitMQ, NATS, Kafka and SQS.
    #[arg(long)]
    pub(crate) no_brokers: bool,
}

impl Options {
    /// Returns whether this is to be measured.
    pub(crate) fn wants(&self, label: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| label.contains(only))
    }

    /// Returns the cases that are to be measured.
    pub(crate) fn cases(&self) -> Vec<Case> {
        let mut cases = plan::cases();
        cases.retain(|case| self.wants(&case.label()) && !(self.no_brokers && case.broker().is_some()));
        cases
    }

    /// Returns the brokers that these need.
    pub(crate) fn brokers(&self) -> Vec<Broker> {
        let brokers: BTreeSet<Broker> = self.cases().iter().filter_map(Case::broker).collect();
        brokers.into_iter().collect()
    }
}
