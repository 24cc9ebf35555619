//! Schedules when each worker is killed.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::crew::Crew;
use crate::journal::Sum;
use crate::plan::Plan;
use crate::tables::Tables;

/// The planned and completed kills.
#[derive(Debug)]
pub(crate) struct Kills {
    /// The number of processed messages after which a worker is killed, whatever it has in hand.
    planned: Vec<u64>,
    /// How many workers kill themselves between a commit and its ack.
    before_ack: usize,
    pub(crate) done: Vec<Kill>,
}

/// A completed kill.
#[derive(Debug)]
pub(crate) struct Kill {
    /// The amount of work that the worker had in hand.
    pub(crate) in_hand: u64,
    /// The message that was committed and not acked, if the kill was between the two.
    pub(crate) before_ack: Option<BeforeAck>,
}

/// A message that was committed and not acked when its worker was killed.
#[derive(Debug)]
pub(crate) struct BeforeAck {
    pub(crate) id: u64,
    /// Whether it had a claim just after the kill. If not, the kill was not after the commit.
    pub(crate) claimed: bool,
}

impl Kills {
    /// Plans the kills at random moments while there is work. Two of five, and at least one, are between commit and
    /// ack, by the workers that start first.
    pub(crate) fn new(kills: usize, plan: &Plan, crew: &mut Crew, rng: &mut Rng) -> Self {
        let messages = plan.orders.len() as u64;
        let before_ack = (kills * 2 / 5).max(1).min(kills);
        // Early: a worker that is killed before leaves its failpoint to the next one, and enough work must be left for
        // that.
        crew.ends.extend((0..before_ack).map(|_| rng.u64(1..=(messages / 300).max(1))));
        let planned = (before_ack..kills).map(|_| rng.u64(messages / 20..=messages / 2)).collect();
        Self { planned, before_ack, done: Vec::new() }
    }

    /// Returns the number of planned kills.
    pub(crate) fn left(&self) -> usize {
        let before_ack = self.done.iter().filter(|kill| kill.before_ack.is_some()).count();
        self.planned.len() + self.before_ack.saturating_sub(before_ack)
    }

    /// Kills a worker if it is due, and starts another one in its place. Also records the workers that killed
    /// themselves.
    pub(crate) async fn strike(
        &mut self,
        crew: &mut Crew,
        (tables, plan): (&mut Tables, &Plan),
        processed: u64,
        rng: &mut Rng,
    ) -> Result<()> {
        for (in_hand, id) in std::mem::take(&mut crew.ended) {
            let order = usize::try_from(id).ok().and_then(|id| plan.orders.get(id));
            let claimed = tables.is_claimed(order.map_or("", |order| &order.key)).await?;
            self.done.push(Kill { in_hand, before_ack: Some(BeforeAck { id, claimed }) });
        }
        let Some(due) = self.planned.iter().position(|after| processed >= *after) else { return Ok(()) };
        let Some(victim) = rng.choice(crew.busy()) else { return Ok(()) };
        tokio::time::sleep(Duration::from_micros(rng.u64(..20_000))).await;
        let Some(in_hand) = crew.kill(victim).await?.map(Sum::in_hand) else { return Ok(()) };
        self.planned.remove(due);
        self.done.push(Kill { in_hand, before_ack: None });
        crew.start()
    }
}
