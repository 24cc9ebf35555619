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

/// How many modes there are.
const MODES: u64 = 5;

/// The server faults of each run.
const FAULTS: &[Fault] = &[Fault::Freeze, Fault::Crash, Fault::Restart];

/// The runs of a campaign.
pub(crate) struct Campaign {
    pub(crate) load: Load,
    pub(crate) chosen: Chosen,
    /// One server fault per run.
    pub(crate) small: bool,
    pub(crate) seed: u64,
}

/// A choice of runs.
pub(crate) enum Chosen {
    All,
    /// Those whose lines begin with this.
    Lines(String),
    /// One of each broker. Five successive numbers choose every run once.
    Turn(u64),
}

impl Chosen {
    /// Returns whether this mode of this broker is chosen; both are numbers from 0.
    fn includes(&self, broker: usize, mode: usize, line: &str) -> bool {
        match self {
            Self::All => true,
            Self::Lines(begin) => line.starts_with(begin),
            Self::Turn(turn) => (turn % MODES + broker as u64) % MODES == mode as u64,
        }
    }
}

/// Runs all that are chosen. Fails if any run had deviations.
pub(crate) async fn all(campaign: &Campaign) -> Result<()> {
    println!("seed {}", campaign.seed);
    let mut wrong = 0;
    wrong += modes::<RabbitMq>(campaign, 0).await?;
    wrong += modes::<Nats>(campaign, 1).await?;
    wrong += modes::<Kafka>(campaign, 2).await?;
    if wrong > 0 {
        bail!("{wrong} of the runs were not as they must be");
    }
    Ok(())
}

/// Runs the chosen modes on one broker, with one set of servers. Returns how many runs had deviations.
async fn modes<B: Broker>(campaign: &Campaign, broker: usize) -> Result<u64> {
    let Campaign { load, chosen, small, seed } = campaign;
    let mut modes: Vec<(usize, Mode)> = Mode::all().into_iter().enumerate().collect();
    modes.retain(|(number, mode)| chosen.includes(broker, *number, &format!("{} {mode}", B::NAME)));
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_turn_chooses_one_run_of_each_broker_and_five_turns_choose_all() {
        assert_eq!(MODES, Mode::all().len() as u64);
        let mut runs = Vec::new();
        for turn in 38..38 + MODES {
            for broker in 0..3 {
                let chosen = |mode: &usize| Chosen::Turn(turn).includes(broker, *mode, "");
                let modes: Vec<usize> = (0..Mode::all().len()).filter(chosen).collect();
                assert_eq!(modes.len(), 1, "turn {turn}, broker {broker}");
                runs.push((broker, modes[0]));
            }
        }
        runs.sort_unstable();
        runs.dedup();
        assert_eq!(runs.len(), 15);
    }
}
