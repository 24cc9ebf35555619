//! Schedules when a worker joins and when one leaves gracefully. On Kafka, partitions move each time.

use anyhow::Result;
use fastrand::Rng;

use crate::due::Due;
use crate::processes::Processes;

/// The planned and completed moves.
#[derive(Debug)]
pub(crate) struct Moves {
    /// The number of deliveries after which each move is due; the last move first.
    planned: Vec<(u64, Move)>,
    pub(crate) added: u64,
    pub(crate) left: u64,
}

#[derive(Debug, Clone, Copy)]
enum Move {
    Add,
    Leave,
}

impl Moves {
    /// Plans one worker joining, and later one leaving, while there is work.
    pub(crate) fn new(deliveries: u64, rng: &mut Rng) -> Self {
        let add = rng.u64(deliveries / 10..=deliveries * 3 / 10);
        let leave = rng.u64(deliveries * 4 / 10..=deliveries * 6 / 10);
        Self { planned: vec![(leave, Move::Leave), (add, Move::Add)], added: 0, left: 0 }
    }

    /// Returns the number of planned moves.
    pub(crate) fn outstanding(&self) -> usize {
        self.planned.len()
    }

    /// Starts a worker, or lets one leave, if it is due.
    pub(crate) async fn make(&mut self, processes: &mut Processes, due: Due, rng: &mut Rng) -> Result<()> {
        let delivered: u64 = processes.sums().map(|sum| sum.delivered).sum();
        let due = Due { done: delivered, ..due };
        let Some(&(_, next)) = self.planned.last().filter(|(moment, _)| due.is(*moment)) else { return Ok(()) };
        match next {
            Move::Add => {
                processes.start()?;
                self.added += 1;
            }
            Move::Leave => {
                let Some(place) = rng.choice(processes.busy()) else { return Ok(()) };
                if !processes.let_go(place).await? {
                    return processes.start();
                }
                self.left += 1;
            }
        }
        self.planned.pop();
        Ok(())
    }
}
