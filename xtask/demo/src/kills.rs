//! When which worker is killed.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::crew::Crew;
use crate::journal::Sum;
use crate::plan::Plan;
use crate::tables::Tables;

/// The kills that are still to come, and what became of those that were.
#[derive(Debug)]
pub(crate) struct Kills {
    /// After how many processed messages a worker is killed in the middle of whatever is in hand.
    planned: Vec<u64>,
    /// How many end themselves between a commit and its ack.
    before_ack: usize,
    pub(crate) done: Vec<Kill>,
}

/// A kill that was.
#[derive(Debug)]
pub(crate) struct Kill {
    /// How much the worker had in hand.
    pub(crate) in_hand: u64,
    /// The message that was committed and not acked, where that was the moment.
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
    /// At random moments while there is work; two of five, and at least one, between commit and ack, by the workers that
    /// are started first.
    pub(crate) fn new(kills: usize, plan: &Plan, crew: &mut Crew, rng: &mut Rng) -> Self {
        let messages = plan.orders.len() as u64;
        let before_ack = (kills * 2 / 5).max(1).min(kills);
        // Soon: what is killed before it comes so far leaves this to the next one, and work must be left for that.
        crew.ends.extend((0..before_ack).map(|_| rng.u64(1..=(messages / 300).max(1))));
        let planned = (before_ack..kills).map(|_| rng.u64(messages / 20..=messages / 2)).collect();
        Self { planned, before_ack, done: Vec::new() }
    }

    /// How many are still to come.
    pub(crate) fn left(&self) -> usize {
        let before_ack = self.done.iter().filter(|kill| kill.before_ack.is_some()).count();
        self.planned.len() + self.before_ack.saturating_sub(before_ack)
    }

    /// Kills if it is time, and starts another worker in its place. Looks at those that ended themselves.
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
