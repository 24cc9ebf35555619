//! The runs of a command, one line each: how much there is to do in each, and how its workers consume messages.

use std::fmt;

use anyhow::{Result, bail};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq, Sqs};

use crate::disruptions::Event;
use crate::harness::directory;
use crate::processes::Servers;
use crate::{relay, run};

/// How many deviations are listed for each line.
const LISTED: usize = 20;

/// The faults of servers in a run of workers.
const FAULTS: [Event; 3] = [Event::Freeze, Event::Crash, Event::Restart];

/// One run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) broker: &'static str,
    pub(crate) mode: Mode,
    /// The relays of an outbox are killed, instead of the workers.
    pub(crate) relay: bool,
    pub(crate) load: Load,
    pub(crate) faults: Vec<Event>,
    pub(crate) seed: u64,
}

/// The outcome of a run.
#[derive(Debug)]
pub(crate) struct Ledger {
    /// The totals in one line.
    pub(crate) line: String,
    /// All deviations.
    pub(crate) wrong: Vec<String>,
}

impl Run {
    /// Returns the run of a broker that was asked for.
    pub(crate) fn new(broker: &'static str, mode: Mode, relay: bool, load: &Load, seed: u64) -> Self {
        Self { broker, mode, relay, load: load.clone(), faults: FAULTS.to_vec(), seed }
    }

    /// Returns every broker in every mode. A small run has one fault, so that each broker has all three.
    pub(crate) fn all(small: bool, seed: u64) -> Vec<Self> {
        let load = match small {
            true => Load { messages: 300, duplicates: 20, kills: Some(2), workers: 2 },
            false => Load { messages: 4000, duplicates: 20, kills: None, workers: 3 },
        };
        let mut runs = Vec::new();
        for broker in BROKERS {
            for (number, mode) in Mode::all().into_iter().enumerate() {
                let run = Self::new(broker, mode, false, &load, seed + number as u64);
                let faults = if small { vec![FAULTS[number % 3]] } else { FAULTS.to_vec() };
                runs.push(Self { faults, ..run });
            }
        }
        runs
    }

    /// Returns the beginning of its line.
    pub(crate) fn name(&self) -> String {
        format!("{} {}{}", self.broker, if self.relay { "relay " } else { "" }, self.mode)
    }
}

/// The names of all brokers.
pub(crate) const BROKERS: [&str; 4] = [RabbitMq::NAME, Nats::NAME, Kafka::NAME, Sqs::NAME];

/// Plays these runs. Fails if any of them had deviations.
pub(crate) async fn play(runs: &[Run]) -> Result<()> {
    // Otherwise a name that no line begins with would be a success.
    if runs.is_empty() {
        bail!("no line of the campaign begins with that");
    }
    let wrong =
        on::<RabbitMq>(runs).await? + on::<Nats>(runs).await? + on::<Kafka>(runs).await? + on::<Sqs>(runs).await?;
    if wrong > 0 {
        bail!("{wrong} of the runs were not as they must be");
    }
    Ok(())
}

/// Plays those of one broker, with one set of servers. Returns how many had deviations.
async fn on<B: Broker>(runs: &[Run]) -> Result<u64> {
    let (mut servers, mut wrong) = (None, 0);
    for run in runs.iter().filter(|run| run.broker == B::NAME) {
        let servers = match &mut servers {
            Some(servers) => servers,
            none => none.insert(Servers::start::<B>().await?),
        };
        let played = match run.relay {
            true => relay::run::<B>(run, servers).await,
            false => run::run::<B>(run, servers).await,
        };
        let Ledger { line, wrong: texts } = played.unwrap_or_else(|error| Ledger {
            line: format!("ENDED: {error:#}"),
            wrong: vec!["it has no result".to_owned()],
        });
        println!("{:24} {line} (seed {}){}", run.name(), run.seed, if texts.is_empty() { "" } else { ": WRONG" });
        texts.iter().take(LISTED).for_each(|text| println!("    {text}"));
        if texts.len() > LISTED {
            println!("    and {} more", texts.len() - LISTED);
        }
        if !texts.is_empty() {
            wrong += 1;
            println!("    the logs of its processes are in {}", directory(&run.name()).display());
        }
    }
    Ok(wrong)
}

/// How the workers consume messages.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct Mode {
    /// Let the workers store each message, ack it, and run it from the inbox.
    #[arg(long)]
    pub(crate) inbox: bool,
    /// Let the workers process up to this many messages in one transaction.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) batch: u16,
    /// Let the handler take each batch as a whole.
    #[arg(long)]
    pub(crate) whole: bool,
}

/// The amount of work.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Load {
    /// The number of messages.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u64).range(100..=10_000_000))]
    pub(crate) messages: u64,
    /// The percentage of messages that are published twice.
    #[arg(long, default_value_t = 20, value_parser = clap::value_parser!(u64).range(0..=100))]
    pub(crate) duplicates: u64,
    /// How often a worker is killed, 5 by default; some of the kills are between commit and ack. With `--relay`, how
    /// often a relay is killed, 20 by default; some of the kills are between confirm and delete.
    #[arg(long)]
    pub(crate) kills: Option<usize>,
    /// How many workers, or relays with `--relay`, run concurrently.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=5))]
    pub(crate) workers: u64,
}

/// The batch size of the campaign.
const BATCH: u16 = 50;

impl Mode {
    /// Returns the modes of the campaign.
    pub(crate) fn all() -> [Self; 5] {
        let single = Self { inbox: false, batch: 1, whole: false };
        let batch = Self { batch: BATCH, ..single };
        let inbox = Self { inbox: true, ..single };
        [single, inbox, batch, Self { whole: true, ..batch }, Self { inbox: true, ..batch }]
    }

    /// Returns the arguments of a worker in this mode.
    pub(crate) fn args(self) -> Vec<String> {
        let mut args = vec![format!("--batch={}", self.batch)];
        args.extend(self.inbox.then(|| "--inbox".to_owned()));
        args.extend(self.whole.then(|| "--whole".to_owned()));
        args
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match (self.inbox, self.batch > 1, self.whole) {
            (false, false, false) => "single",
            (true, false, false) => "inbox",
            (false, true, false) => "batch",
            (false, _, true) => "batch handler",
            (true, true, false) => "inbox with batch",
            (true, _, true) => "inbox with batch handler",
        })
    }
}
