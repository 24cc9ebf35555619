//! The wait until each message is taken, with the planned kills and faults.

use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use idem_brokers::Broker;

use super::handlers::RELAYED;
use super::rows::{Progress, progress};
use crate::disruptions::Disruptions;
use crate::due::Due;
use crate::faults::Fault;
use crate::plan::Plan;
use crate::processes::Processes;
use crate::run::{LONGEST, QUIET, left, provide, reconnected};
use crate::servers::Servers;
use crate::supply::Supply;
use crate::tables::Tables;
use crate::worker::NAME;

/// The processes of a run.
pub(super) struct Chain<'a> {
    pub(super) stage: &'a mut Processes,
    pub(super) relays: &'a mut Processes,
    pub(super) take: &'a mut Processes,
}

impl Chain<'_> {
    fn look(&mut self) -> Result<()> {
        self.stage.look()?;
        self.relays.look()?;
        self.take.look()
    }

    fn is_idle(&self) -> bool {
        [&self.stage, &self.relays, &self.take].into_iter().all(|processes| processes.busy().is_empty())
    }
}

/// Waits until all messages are taken, or until there is no progress for a while, which the ledger then shows. Returns
/// the time of the last progress.
pub(super) async fn drain<B: Broker>(
    mut chain: Chain<'_>,
    disruptions: &mut Disruptions,
    tables: &mut Tables,
    (source, target, supply, servers): (&mut B, &mut B, &mut Supply, &mut Servers),
    plan: &Plan,
    rng: &mut Rng,
) -> Result<Instant> {
    let start = Instant::now();
    let mut moved = (Instant::now(), Progress::default());
    let mut asked = Instant::now();
    let mut all = false;
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        chain.look()?;
        let (due, outstanding) = (Due { done: moved.1.taken, all }, disruptions.outstanding());
        // A confirmed message is committed: a relay sees no others.
        let struck = disruptions.strike(chain.relays, servers, async |_| Ok(true), due, rng).await?;
        if struck == Some(Fault::Restart) {
            *source = reconnected(servers.broker(), NAME).await?;
            *target = reconnected(servers.broker(), RELAYED).await?;
        }
        all &= disruptions.outstanding() == outstanding;
        if asked.elapsed() < Duration::from_millis(250) {
            continue;
        }
        asked = Instant::now();
        let progress = progress(tables).await?;
        if progress != moved.1 {
            moved = (Instant::now(), progress);
        }
        let idle = chain.is_idle() && progress.waiting + progress.scheduled == 0 && left(source).await? == 0;
        all |= provide(supply, disruptions, chain.relays, source, idle).await?;
        let over = progress.taken + progress.dead >= plan.orders.len() as u64;
        let done = idle && over && supply.is_over() && disruptions.kills.have_come_again(chain.relays, |_| 1);
        // No change for a second, in which a copy may still arrive.
        if done && moved.0.elapsed() > Duration::from_secs(1) && left(target).await? == 0
            || moved.0.elapsed() > QUIET
            || start.elapsed() > LONGEST
        {
            return Ok(moved.0);
        }
    }
}
