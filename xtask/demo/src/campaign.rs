//! The runs of a command, one line each.

use anyhow::{Result, bail};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};

use crate::disruptions::Event;
use crate::harness::directory;
use crate::mode::{Load, Mode};
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
pub(crate) const BROKERS: [&str; 3] = [RabbitMq::NAME, Nats::NAME, Kafka::NAME];

/// Plays these runs. Fails if any of them had deviations.
pub(crate) async fn play(runs: &[Run]) -> Result<()> {
    // Otherwise a name that no line begins with would be a success.
    if runs.is_empty() {
        bail!("no line of the campaign begins with that");
    }
    let wrong = on::<RabbitMq>(runs).await? + on::<Nats>(runs).await? + on::<Kafka>(runs).await?;
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
