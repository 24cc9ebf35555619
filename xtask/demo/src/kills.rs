//! When which worker is killed.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::crew::Crew;
use crate::tables::Tables;

/// The kills that are still to come, and what became of those that were.
#[derive(Debug)]
pub(crate) struct Kills {
    /// After how many deliveries, and whether between commit and ack; the last one first.
    planned: Vec<(u64, bool)>,
    pub(crate) done: Vec<Kill>,
}

/// A kill that was.
#[derive(Debug)]
pub(crate) struct Kill {
    /// How many deliveries the worker had in hand; none where it was to end at its next ack, and none came.
    pub(crate) in_flight: u64,
    /// The message that was committed and not acked, where that was the moment.
    pub(crate) before_ack: Option<BeforeAck>,
}

/// A message that was committed and not acked when its worker was killed.
#[derive(Debug)]
pub(crate) struct BeforeAck {
    pub(crate) id: u64,
    /// How many effect rows it had just after the kill: one, or the kill was not after the commit.
    pub(crate) effects: u64,
}

impl Kills {
    /// At random moments while there is work; two of five between commit and ack, and at least one.
    pub(crate) fn new(kills: usize, deliveries: u64, rng: &mut Rng) -> Self {
        let before_ack = (kills * 2 / 5).max(1);
        let mut kinds: Vec<bool> = (0..kills).map(|number| number < before_ack).collect();
        rng.shuffle(&mut kinds);
        let mut moments: Vec<u64> = (0..kills).map(|_| rng.u64(deliveries / 20..=deliveries * 3 / 4)).collect();
        moments.sort_unstable_by(|a, b| b.cmp(a));
        Self { planned: moments.into_iter().zip(kinds).collect(), done: Vec::new() }
    }

    /// How many are still to come.
    pub(crate) fn left(&self) -> usize {
        self.planned.len()
    }

    /// Kills if it is time, and starts another worker in its place.
    pub(crate) async fn strike(&mut self, crew: &mut Crew, tables: &mut Tables, rng: &mut Rng) -> Result<()> {
        let delivered: u64 = crew.sums().map(|sum| sum.delivered).sum();
        let Some(&(moment, before_ack)) = self.planned.last() else { return Ok(()) };
        let Some(victim) = rng.choice(crew.busy()).filter(|_| delivered >= moment) else { return Ok(()) };
        self.planned.pop();
        let kill = if before_ack {
            let sum = crew.arm(victim).await?;
            match (sum.in_flight, sum.ended_at) {
                (in_flight, Some(id)) => {
                    let effects = tables.effects_of(id).await?;
                    Kill { in_flight, before_ack: Some(BeforeAck { id, effects }) }
                }
                (_, None) => Kill { in_flight: 0, before_ack: None },
            }
        } else {
            tokio::time::sleep(Duration::from_micros(rng.u64(..20_000))).await;
            Kill { in_flight: crew.kill(victim).await?.in_flight, before_ack: None }
        };
        self.done.push(kill);
        crew.start()
    }
}
