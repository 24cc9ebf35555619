//! When a worker is added, and when one leaves in good order. On Kafka partitions move each time.

use anyhow::Result;
use fastrand::Rng;

use crate::crew::Crew;

/// What is still to come, and what was.
#[derive(Debug)]
pub(crate) struct Moves {
    /// After how many deliveries, and which; the last one first.
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
    /// One more worker, and later one less, while there is work.
    pub(crate) fn new(deliveries: u64, rng: &mut Rng) -> Self {
        let add = rng.u64(deliveries / 10..=deliveries * 3 / 10);
        let leave = rng.u64(deliveries * 4 / 10..=deliveries * 6 / 10);
        Self { planned: vec![(leave, Move::Leave), (add, Move::Add)], added: 0, left: 0 }
    }

    /// How many are still to come.
    pub(crate) fn outstanding(&self) -> usize {
        self.planned.len()
    }

    /// Adds a worker, or lets one leave, if it is time.
    pub(crate) async fn make(&mut self, crew: &mut Crew, rng: &mut Rng) -> Result<()> {
        let delivered: u64 = crew.sums().map(|sum| sum.delivered).sum();
        let Some(&(_, next)) = self.planned.last().filter(|(moment, _)| delivered >= *moment) else { return Ok(()) };
        match next {
            Move::Add => {
                crew.start()?;
                self.added += 1;
            }
            Move::Leave => {
                let Some(place) = rng.choice(crew.busy()) else { return Ok(()) };
                if !crew.let_go(place).await? {
                    return crew.start();
                }
                self.left += 1;
            }
        }
        self.planned.pop();
        Ok(())
    }
}
