//! Schedules when each worker is killed.

use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;

use crate::due::Due;
use crate::journal::Sum;
use crate::plan::Plan;
use crate::processes::Processes;

/// Longer than a worker needs to end itself once it has taken the signal.
const TAKEN: Duration = Duration::from_secs(10);

/// The planned and completed kills.
#[derive(Debug)]
pub(crate) struct Kills {
    /// The number of processed messages after which a worker is killed, whatever it has in hand.
    planned: Vec<u64>,
    /// The number of processed messages after which a worker kills itself between a commit and its ack.
    before_ack: Vec<u64>,
    /// When the workers were last told so, if none of them has done it since.
    told: Option<Instant>,
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
    /// Whether the database had its claim just after the kill. If not, the kill was not after the commit.
    pub(crate) committed: bool,
}

impl Kills {
    /// Plans the kills at random moments while there is work. Two of five, and at least one, are between commit and
    /// ack.
    pub(crate) fn new(kills: usize, plan: &Plan, rng: &mut Rng) -> Self {
        let messages = plan.orders.len() as u64;
        let before_ack = (kills * 2 / 5).max(1).min(kills);
        let mut moments = |count: usize, first: u64| (0..count).map(|_| rng.u64(first..=messages / 2)).collect();
        let (before_ack, planned) = (moments(before_ack, 0), moments(kills - before_ack, messages / 20));
        Self { planned, before_ack, told: None, done: Vec::new() }
    }

    /// Returns the number of planned kills.
    pub(crate) fn left(&self) -> usize {
        self.planned.len() + self.before_ack.len()
    }

    /// Returns whether each message that was committed and not acked when its worker was killed has been delivered
    /// again.
    pub(crate) fn have_come_again(&self, processes: &Processes, published: impl Fn(u64) -> u64) -> bool {
        self.done
            .iter()
            .filter_map(|kill| kill.before_ack.as_ref())
            .all(|moment| came_again(moment.id, processes, &published))
    }

    /// Kills a worker if it is due, and starts another one in its place. Also records the workers that killed
    /// themselves; `committed` says whether the message at whose ack one did so was committed.
    pub(crate) async fn strike(
        &mut self,
        processes: &mut Processes,
        mut committed: impl AsyncFnMut(u64) -> Result<bool>,
        due: Due,
        rng: &mut Rng,
    ) -> Result<()> {
        self.end_one(processes, due)?;
        for (in_hand, id) in std::mem::take(&mut processes.ended) {
            let committed = committed(id).await?;
            self.done.push(Kill { in_hand, before_ack: Some(BeforeAck { id, committed }) });
            self.told = None;
            self.before_ack.pop();
        }
        let Some(due) = self.planned.iter().position(|after| due.is(*after)) else { return Ok(()) };
        let Some(victim) = rng.choice(processes.busy()) else { return Ok(()) };
        tokio::time::sleep(Duration::from_micros(rng.u64(..20_000))).await;
        let Some(in_hand) = processes.kill(victim).await?.map(Sum::in_hand) else { return Ok(()) };
        self.planned.remove(due);
        self.done.push(Kill { in_hand, before_ack: None });
        processes.start()
    }

    /// Tells the workers to end one of them between commit and ack, if that is due.
    fn end_one(&mut self, processes: &Processes, due: Due) -> Result<()> {
        // A worker that took the signal may be killed by something else before it could record that.
        let is_lost = |told: Instant| told.elapsed() > TAKEN && !processes.signals.is_end_pending();
        if self.told.is_none_or(is_lost) && self.before_ack.last().is_some_and(|after| due.is(*after)) {
            processes.signals.end_one()?;
            self.told = Some(Instant::now());
        }
        Ok(())
    }
}

/// Returns whether this message was delivered more often than it was published. A mark of the broker would not do:
/// Kafka has none.
pub(crate) fn came_again(id: u64, processes: &Processes, published: impl Fn(u64) -> u64) -> bool {
    processes.sums().map(|sum| sum.deliveries(id)).sum::<u64>() > published(id)
}
