//! When which worker is killed.

use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;

use crate::crew::Crew;
use crate::plan::Plan;
use crate::tables::Tables;

/// The kills that are still to come, and what became of those that were.
#[derive(Debug)]
pub(crate) struct Kills {
    planned: Vec<Moment>,
    pub(crate) done: Vec<Kill>,
}

/// When a kill comes.
#[derive(Debug, Clone, Copy)]
enum Moment {
    /// After so many deliveries, between a commit and its ack.
    Delivered(u64),
    /// After so many messages are processed, in the middle of whatever is in hand.
    Processed(u64),
}

/// A kill that was.
#[derive(Debug)]
pub(crate) struct Kill {
    /// How much the worker had in hand; nothing where it was to end at its next ack, and none came.
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
    /// At random moments while there is work; two of five between commit and ack, and at least one.
    pub(crate) fn new(kills: usize, plan: &Plan, rng: &mut Rng) -> Self {
        let before_ack = (kills * 2 / 5).max(1);
        let mut moment = |of: usize| rng.u64(of as u64 / 20..=of as u64 * 3 / 4);
        let planned = (0..kills).map(|number| match number {
            number if number < before_ack => Moment::Delivered(moment(plan.published.len())),
            _ => Moment::Processed(moment(plan.orders.len())),
        });
        Self { planned: planned.collect(), done: Vec::new() }
    }

    /// How many are still to come.
    pub(crate) fn left(&self) -> usize {
        self.planned.len()
    }

    /// Kills if it is time, and starts another worker in its place.
    pub(crate) async fn strike(
        &mut self,
        crew: &mut Crew,
        (tables, plan): (&mut Tables, &Plan),
        processed: u64,
        rng: &mut Rng,
    ) -> Result<()> {
        let delivered: u64 = crew.sums().map(|sum| sum.delivered).sum();
        let is_due = |moment: &Moment| match *moment {
            Moment::Delivered(after) => delivered >= after,
            Moment::Processed(after) => processed >= after,
        };
        let Some(due) = self.planned.iter().position(is_due) else { return Ok(()) };
        let Some(victim) = rng.choice(crew.busy()) else { return Ok(()) };
        let kill = match self.planned.remove(due) {
            Moment::Delivered(_) => {
                let sum = crew.arm(victim).await?;
                match (sum.in_hand(), sum.ended_at) {
                    (in_hand, Some(id)) => {
                        let order = usize::try_from(id).ok().and_then(|id| plan.orders.get(id));
                        let claimed = tables.is_claimed(order.map_or("", |order| &order.key)).await?;
                        Kill { in_hand, before_ack: Some(BeforeAck { id, claimed }) }
                    }
                    (_, None) => Kill { in_hand: 0, before_ack: None },
                }
            }
            Moment::Processed(_) => {
                tokio::time::sleep(Duration::from_micros(rng.u64(..20_000))).await;
                Kill { in_hand: crew.kill(victim).await?.in_hand(), before_ack: None }
            }
        };
        self.done.push(kill);
        crew.start()
    }
}
