//! Runs every broker in every mode and prints one line each.

use anyhow::{Result, bail};
use idem_brokers::{Broker, Kafka, Nats, RabbitMq};

use crate::faults::Fault;
use crate::load::Load;
use crate::mode::Mode;
use crate::run::{directory, run};
use crate::servers::Servers;

/// How many deviations are listed for each line.
const LISTED: usize = 20;

/// The server faults of each run.
const FAULTS: &[Fault] = &[Fault::Freeze, Fault::Crash, Fault::Restart];

/// The runs of a campaign.
pub(crate) struct Campaign {
    pub(crate) load: Load,
    /// Only the runs whose lines begin with this.
    pub(crate) only: Option<String>,
    /// One server fault per run.
    pub(crate) small: bool,
    pub(crate) seed: u64,
}

/// Runs the campaign. Fails if any run had deviations.
pub(crate) async fn all(campaign: &Campaign) -> Result<()> {
    println!("seed {}", campaign.seed);
    // Otherwise a name that no line begins with would be a success.
    let begin = campaign.only.as_deref().unwrap_or_default();
    let brokers = [RabbitMq::NAME, Nats::NAME, Kafka::NAME];
    let lines =
        || brokers.iter().flat_map(|broker| Mode::all().into_iter().map(move |mode| format!("{broker} {mode}")));
    if !lines().any(|line| line.starts_with(begin)) {
        bail!("no line of the campaign begins with {begin:?}");
    }
    let mut wrong = 0;
    wrong += modes::<RabbitMq>(campaign).await?;
    wrong += modes::<Nats>(campaign).await?;
    wrong += modes::<Kafka>(campaign).await?;
    if wrong > 0 {
        bail!("{wrong} of the runs were not as they must be");
    }
    Ok(())
}

/// Runs on one broker, with one set of servers. Returns how many runs had deviations.
async fn modes<B: Broker>(campaign: &Campaign) -> Result<u64> {
    let Campaign { load, only, small, seed } = campaign;
    let mut modes: Vec<(usize, Mode)> = Mode::all().into_iter().enumerate().collect();
    let begin = only.as_deref().unwrap_or_default();
    modes.retain(|(_, mode)| format!("{} {mode}", B::NAME).starts_with(begin));
    if modes.is_empty() {
        return Ok(0);
    }
    let mut servers = Servers::start::<B>().await?;
    let mut wrong = 0;
    for (number, mode) in modes {
        // A small run has one fault, so that each broker has all three.
        let faults = if *small { &FAULTS[number % 3..][..1] } else { FAULTS };
        let named = format!("{:8} {mode:16}", B::NAME);
        let verdict = match run::<B>(load, mode, faults, seed + number as u64, &mut servers).await {
            Ok(ledger) => {
                println!("{named} {}", ledger.line());
                let texts: Vec<String> = ledger.wrong().collect();
                texts.iter().take(LISTED).for_each(|text| println!("    {text}"));
                if texts.len() > LISTED {
                    println!("    and {} more", texts.len() - LISTED);
                }
                texts.is_empty()
            }
            Err(error) => {
                println!("{named} ENDED: {error:#}");
                false
            }
        };
        if !verdict {
            wrong += 1;
            println!("    the logs of its workers are in {}", directory(&format!("{} {mode}", B::NAME)).display());
        }
    }
    Ok(wrong)
}
