//! The harness of all runs: publishes the events, kills processes and breaks servers meanwhile, and waits until everything is
//! settled.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use idem_brokers::Broker;

use crate::disruptions::{Disruptions, Event};
use crate::journal::Sum;
use crate::plan::Plan;
use crate::processes::{Processes, Servers};
use crate::tables::{Progress, Tables};

/// The share of the events that is held back as long as something is still to be done to the processes: one of this many.
const SHARE: usize = 4;
/// Portions of these for waits that nothing has used.
const SPARE: usize = 5;
/// Longer than any expected delay: a retry waits for less than 2 s, and the lease of a dead process is 1 s.
const QUIET: Duration = Duration::from_secs(40);
/// The limit for a run that never comes to rest.
const LONGEST: Duration = Duration::from_secs(600);

/// A run.
pub(crate) struct Scene<'a, B> {
    pub(crate) plan: &'a Plan,
    pub(crate) servers: &'a mut Servers,
    pub(crate) tables: Tables,
    /// The queue, stream or topic of the events, and those behind it, each with its name.
    pub(crate) brokers: Vec<(&'static str, B)>,
    /// The processes, and how many run of each kind. Those of the first kind are killed.
    pub(crate) processes: Vec<(Processes, u64)>,
    pub(crate) disruptions: Disruptions,
    /// The query of the [`Progress`].
    pub(crate) progress: &'static str,
    /// How often a message is given to the processes that are killed, if none of them dies.
    pub(crate) times: fn(&Plan, u64) -> u64,
}

impl<B: Broker> Scene<'_, B> {
    /// Plays the run to its end: until all is settled, or until there is no progress for a while, which the judgement then
    /// shows. Returns how long it took until the last progress.
    pub(crate) async fn play(&mut self, rng: &mut Rng) -> Result<Duration> {
        let orders = self.plan.published.iter().map(|at| self.plan.orders[*at].payload());
        let mut supply = Supply::new(orders.collect::<Result<_>>()?, self.disruptions.left() + SPARE);
        supply.some(&self.brokers[0].1).await?;
        let start = Instant::now();
        for (processes, count) in &mut self.processes {
            (0..*count).try_for_each(|_| processes.start())?;
        }
        let moved = self.drain(supply, rng).await?;
        for (processes, _) in &mut self.processes {
            processes.dismiss().await?;
        }
        Ok(moved.duration_since(start))
    }

    /// Returns the processes that are killed.
    pub(crate) fn victims(&self) -> &Processes {
        &self.processes[0].0
    }

    /// Returns the total of all processes of this kind.
    pub(crate) fn count(&self, kind: usize, of: fn(&Sum) -> u64) -> u64 {
        self.processes[kind].0.sums().map(of).sum()
    }

    /// Returns how many messages are with the broker.
    pub(crate) async fn left(&self) -> Result<u64> {
        let mut sum = 0;
        for (_, broker) in &self.brokers {
            sum += left(broker).await?;
        }
        Ok(sum)
    }

    /// Returns whether this message came again after the process that had it was killed. A mark of the broker would not do:
    /// Kafka has none.
    pub(crate) fn came_again(&self, id: u64) -> bool {
        self.victims().sums().map(|sum| sum.deliveries(id)).sum::<u64>() > (self.times)(self.plan, id)
    }

    async fn drain(&mut self, mut supply: Supply, rng: &mut Rng) -> Result<Instant> {
        let start = Instant::now();
        let (mut moved, mut seen, mut asked) = (start, (0, Progress::default()), start);
        let mut all = false;
        loop {
            tokio::time::sleep(Duration::from_millis(5)).await;
            self.processes.iter_mut().try_for_each(|(processes, _)| processes.look())?;
            let outstanding = self.disruptions.left();
            let Self { plan, tables, servers, disruptions, processes, .. } = self;
            let claimed = async |id| {
                let order = usize::try_from(id).ok().and_then(|id| plan.orders.get(id));
                tables.is_claimed(order.map_or("", |order| &order.key)).await
            };
            let struck = disruptions.strike(&mut processes[0].0, servers, claimed, (seen.1.done, all), rng).await?;
            if struck == Some(Event::Restart) {
                for (name, broker) in &mut self.brokers {
                    *broker = patiently(|| B::connect(self.servers.broker(), name)).await?;
                }
            }
            // One at a time: kills in a row would hit the same messages, and four deaths make any message a dead letter.
            all &= self.disruptions.left() == outstanding;
            if asked.elapsed() < Duration::from_millis(250) {
                continue;
            }
            asked = Instant::now();
            self.tables.hurry().await?;
            let now = (self.count(0, |sum| sum.delivered), self.tables.progress(self.progress).await?);
            if now != seen {
                (moved, seen) = (Instant::now(), now);
            }
            let Progress { done, dead, waiting } = seen.1;
            // Deliveries in transit to a process are not counted as in hand yet.
            let idle = self.processes.iter().all(|(processes, _)| processes.busy().is_empty());
            let idle = idle && waiting == 0 && left(&self.brokers[0].1).await? == 0;
            all |= self.provide(&mut supply, idle).await?;
            let settled = idle && done + dead >= self.plan.orders.len() as u64 && supply.0.is_empty();
            let settled = settled && self.disruptions.before_ack().all(|(id, _)| self.came_again(id));
            // No change for a second: what a killed process had in hand may be on its way back to the broker.
            if settled && moved.elapsed() > Duration::from_secs(1) && self.left().await? == 0
                || moved.elapsed() > QUIET
                || start.elapsed() > LONGEST
            {
                return Ok(moved);
            }
        }
    }

    /// Publishes more if the processes have run out of work while something is still to be done to them: a little, which they
    /// hold for a while. Publishes the rest once nothing is to be done any more. Returns whether they get work to hold, so
    /// that the next kill or event is due.
    async fn provide(&mut self, supply: &mut Supply, idle: bool) -> Result<bool> {
        let (signals, broker) = (&mut self.processes[0].0.signals, &self.brokers[0].1);
        if self.disruptions.left() == 0 {
            signals.release()?;
            while !supply.0.is_empty() {
                supply.some(broker).await?;
            }
            return Ok(false);
        }
        let holds = idle && !supply.0.is_empty();
        if holds {
            signals.hold()?;
            supply.some(broker).await?;
        }
        Ok(holds)
    }
}

/// The events that are not published yet, in portions.
struct Supply(VecDeque<Vec<Vec<u8>>>);

impl Supply {
    /// Divides the events: the greater part, and the rest in this many portions, more than are needed.
    fn new(mut payloads: Vec<Vec<u8>>, portions: usize) -> Self {
        let held_back = payloads.split_off(payloads.len() - payloads.len() / SHARE);
        let size = held_back.len().div_ceil(portions).max(1);
        Self(std::iter::once(payloads).chain(held_back.chunks(size).map(<[_]>::to_vec)).collect())
    }

    /// Publishes one portion.
    async fn some<B: Broker>(&mut self, broker: &B) -> Result<()> {
        match self.0.pop_front() {
            Some(portion) => broker.publish(&portion).await,
            None => Ok(()),
        }
    }
}

/// Returns how many messages are in this queue, stream or topic.
async fn left<B: Broker>(broker: &B) -> Result<u64> {
    patiently(|| broker.left()).await
}

/// Asks a broker again if it does not answer: it may just have been restarted.
async fn patiently<T, F: Future<Output = Result<T>>>(ask: impl Fn() -> F) -> Result<T> {
    let start = Instant::now();
    loop {
        match ask().await {
            Err(error) if start.elapsed() > QUIET => return Err(error).context("the broker does not answer"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            answer => return answer,
        }
    }
}

/// Returns the directory to which the processes of a run with this name write.
pub(crate) fn directory(name: &str) -> PathBuf {
    idem_services::root().join("target/demo").join(name.replace(' ', "-"))
}
