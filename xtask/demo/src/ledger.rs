//! The sum, and the verdict.

use std::collections::HashSet;
use std::fmt;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::crew::Crew;
use crate::kills::Kills;
use crate::moves::Moves;
use crate::plan::Plan;
use crate::tables::{Tables, missing};

/// What became of all messages.
#[derive(Debug)]
pub(crate) struct Ledger {
    published: u64,
    /// Those that a worker took in hand. What a killed worker had only been sent is counted when it comes again.
    deliveries: u64,
    redeliveries: u64,
    processed: u64,
    duplicates: u64,
    dead: u64,
    /// Those that always fail: the dead letters are these and no others.
    failing: u64,
    effect_rows: u64,
    lost: u64,
    doubled: u64,
    kills: u64,
    before_ack: u64,
    added: u64,
    left: u64,
    rate: f64,
    took: Duration,
    /// What else is not as it must be.
    faults: Vec<String>,
}

impl Ledger {
    pub(crate) async fn new(
        plan: &Plan,
        crew: &Crew,
        (kills, moves): (&Kills, &Moves),
        tables: &mut Tables,
        left: u64,
        took: Duration,
    ) -> Result<Self> {
        let effects = tables.effects().await?;
        let dead = tables.dead().await?;
        let progress = tables.progress().await?;

        let (with_effect, dead_ids) = (ids(effects.keys()), ids(dead.iter().map(|(id, _)| id)));
        let (succeeding, failing) = (plan.succeeding(), plan.failing());
        // A message that must work and is dead is not lost, but no less wrong: it is a fault below.
        let lost_effects = succeeding.difference(&with_effect).filter(|id| !dead_ids.contains(id)).count() as u64;
        let effect_rows = effects.values().sum::<u64>();
        let count = |sum: fn(&crate::journal::Sum) -> u64| crew.sums().map(sum).sum::<u64>();
        let deliveries = count(|sum| sum.delivered);

        let mut faults = Vec::new();
        let mut must = |holds: bool, fault: String| {
            if !holds {
                faults.push(fault);
            }
        };
        let innocent = missing(&dead_ids, &failing);
        must(innocent == 0, format!("{innocent} dead letters that should have worked"));
        let repeated = dead.len() - dead_ids.len();
        must(repeated == 0, format!("{repeated} dead letters that are there twice"));
        let reasons = dead.iter().filter(|(_, reason)| reason != "exhausted").count();
        must(reasons == 0, format!("{reasons} dead letters for another reason than the end of their attempts"));
        let rolled_back = missing(&with_effect, &succeeding);
        must(rolled_back == 0, format!("{rolled_back} messages that failed and have an effect all the same"));
        must(progress.processed == succeeding.len() as u64, "claims and messages differ in number".to_owned());
        must(progress.parked == 0, format!("{} messages still wait in the inbox", progress.parked));
        must(left == 0, format!("{left} messages are still with the broker"));
        must(moves.outstanding() == 0, "no worker was added or left: there was no work left".to_owned());
        must(kills.left() == 0, format!("{} kills did not happen: there was no work left", kills.left()));
        for kill in &kills.done {
            must(kill.in_hand > 0, "a kill hit an idle worker".to_owned());
            let Some(moment) = &kill.before_ack else { continue };
            let came_again = crew.sums().any(|sum| sum.again.contains(&moment.id));
            must(moment.claimed, format!("message {} had no commit when its worker was killed", moment.id));
            must(came_again, format!("message {} did not come again after its worker was killed", moment.id));
        }
        let before_ack = kills.done.iter().filter(|kill| kill.before_ack.is_some()).count() as u64;
        must(before_ack > 0 || kills.done.is_empty(), "no kill was between commit and ack".to_owned());

        Ok(Self {
            published: plan.published.len() as u64,
            deliveries,
            redeliveries: count(|sum| sum.redelivered),
            processed: progress.processed,
            duplicates: count(|sum| sum.duplicates),
            dead: dead.len() as u64,
            failing: failing.len() as u64,
            effect_rows,
            lost: lost_effects + missing(&failing, &dead_ids),
            doubled: effects.values().map(|rows| rows - 1).sum(),
            kills: kills.done.len() as u64,
            before_ack,
            added: moves.added,
            left: moves.left,
            rate: deliveries as f64 / took.as_secs_f64(),
            took,
            faults,
        })
    }

    /// An error unless all is as it must be.
    pub(crate) fn verdict(&self) -> Result<()> {
        let mut faults = self.faults.clone();
        if self.lost > 0 || self.doubled > 0 {
            faults.push(format!("lost {}, doubled {}", self.lost, self.doubled));
        }
        if !faults.is_empty() {
            bail!("{}", faults.join("; "));
        }
        Ok(())
    }
}

impl fmt::Display for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, number: u64| writeln!(f, "{name:20}{number:>8}");
        line("published", self.published)?;
        line("deliveries", self.deliveries)?;
        line("redeliveries", self.redeliveries)?;
        line("processed", self.processed)?;
        line("duplicates skipped", self.duplicates)?;
        line("dead letters", self.dead)?;
        line("  made to fail", self.failing)?;
        line("effect rows", self.effect_rows)?;
        line("workers killed", self.kills)?;
        line("  before their ack", self.before_ack)?;
        line("workers added", self.added)?;
        line("workers that left", self.left)?;
        line("msg/s", self.rate as u64)?;
        writeln!(f, "\nlost {}, doubled {}, in {:.1} s", self.lost, self.doubled, self.took.as_secs_f64())
    }
}

fn ids<'a>(ids: impl Iterator<Item = &'a u64>) -> HashSet<u64> {
    ids.copied().collect()
}
