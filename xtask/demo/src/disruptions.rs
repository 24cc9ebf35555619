//! All that is done to the workers and the servers during a run.

use anyhow::Result;
use fastrand::Rng;

use crate::due::Due;
use crate::faults::{Fault, Faults};
use crate::kills::Kills;
use crate::moves::Moves;
use crate::plan::Plan;
use crate::processes::Processes;
use crate::servers::Servers;

/// The planned and completed kills, moves and faults.
#[derive(Debug)]
pub(crate) struct Disruptions {
    pub(crate) kills: Kills,
    pub(crate) moves: Moves,
    pub(crate) faults: Faults,
}

impl Disruptions {
    pub(crate) fn new(kills: usize, faults: &[Fault], plan: &Plan, rng: &mut Rng) -> Self {
        Self {
            kills: Kills::new(kills, plan, rng),
            moves: Moves::new(plan.published.len() as u64, rng),
            faults: Faults::new(faults, plan.effects()),
        }
    }

    /// Returns how many of them are still to come.
    pub(crate) fn outstanding(&self) -> usize {
        self.kills.left() + self.moves.outstanding() + self.faults.outstanding()
    }

    /// Does what is due, and returns the fault that was injected.
    pub(crate) async fn strike(
        &mut self,
        processes: &mut Processes,
        servers: &mut Servers,
        committed: impl AsyncFnMut(u64) -> Result<bool>,
        due: Due,
        rng: &mut Rng,
    ) -> Result<Option<Fault>> {
        self.kills.strike(processes, committed, due, rng).await?;
        self.moves.make(processes, due, rng).await?;
        self.faults.strike(servers, due).await
    }
}
