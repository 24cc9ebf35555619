//! One run, in order: tables, broker, messages, workers, kills and faults, drain, ledger.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use idem_brokers::Broker;

use crate::disruptions::Disruptions;
use crate::due::Due;
use crate::faults::Fault;
use crate::ledger::{Done, Ledger};
use crate::load::{KILLS, Load};
use crate::mode::Mode;
use crate::plan::Plan;
use crate::processes::Processes;
use crate::servers::{DATABASE, Servers};
use crate::supply::Supply;
use crate::tables::{Progress, Tables};
use crate::worker::NAME;

/// Portions of messages for waits that no kill, move or fault has used.
pub(crate) const SPARE: usize = 5;
/// Longer than any expected delay: a retry waits for less than 2 s, and the lease of a dead worker is 1 s.
pub(crate) const QUIET: Duration = Duration::from_secs(40);
/// The limit for a run that never comes to rest.
pub(crate) const LONGEST: Duration = Duration::from_secs(240);

/// Performs a run and returns the outcomes of the messages.
pub(crate) async fn run<B: Broker>(
    load: &Load,
    mode: Mode,
    faults: &[Fault],
    seed: u64,
    servers: &mut Servers,
) -> Result<Ledger> {
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::new(load.messages, load.duplicates, &mut rng);
    let mut tables = Tables::new(servers.database()).await?;
    let mut broker = B::connect(servers.broker(), NAME).await?;
    broker.create().await?;
    let call = ["worker".to_owned(), B::NAME.to_owned()].into_iter().chain(mode.args()).collect();
    let env = vec![(DATABASE, servers.database().to_owned()), (B::VARIABLE, servers.broker().to_owned())];
    let mut processes = Processes::new("worker", &directory(&format!("{} {mode}", B::NAME)), call, env)?;
    let mut disruptions = Disruptions::new(load.kills.unwrap_or(KILLS), faults, &plan, &mut rng);
    let payloads = plan.published.iter().map(|at| plan.orders[*at].payload()).collect::<Result<Vec<_>>>()?;
    let mut supply = Supply::publish(payloads, disruptions.outstanding() + SPARE, &broker).await?;

    let start = Instant::now();
    for _ in 0..load.workers {
        processes.start()?;
    }
    let others = (&mut broker, &mut supply, servers);
    let moved = drain(&mut processes, &mut disruptions, &mut tables, others, &plan, &mut rng).await?;
    processes.dismiss().await?;
    let left = left(&broker).await?;
    let Disruptions { kills, moves, faults } = &disruptions;
    let done = Done { processes: &processes, kills, moves, faults, took: moved.duration_since(start) };
    let ledger = Ledger::new(&plan, &done, &mut tables, left).await?;
    broker.delete().await?;
    Ok(ledger)
}

/// Waits until all messages are settled, performing the planned kills and faults meanwhile, or until there is no
/// progress for a while, which the ledger then shows. Returns the time of the last progress.
async fn drain<B: Broker>(
    processes: &mut Processes,
    disruptions: &mut Disruptions,
    tables: &mut Tables,
    (broker, supply, servers): (&mut B, &mut Supply, &mut Servers),
    plan: &Plan,
    rng: &mut Rng,
) -> Result<Instant> {
    let start = Instant::now();
    let mut moved = (Instant::now(), 0, Progress::default());
    let mut asked = Instant::now();
    let mut all = false;
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        processes.look()?;
        let (due, outstanding) = (Due { done: moved.2.processed, all }, disruptions.outstanding());
        let claimed = async |id| {
            let order = usize::try_from(id).ok().and_then(|id| plan.orders.get(id));
            tables.is_claimed(order.map_or("", |order| &order.key)).await
        };
        if disruptions.strike(processes, servers, claimed, due, rng).await? == Some(Fault::Restart) {
            *broker = reconnected(servers.broker(), NAME).await?;
        }
        // One at a time: kills in a row would hit the same messages, and four deaths make any message a dead letter.
        all &= disruptions.outstanding() == outstanding;
        if asked.elapsed() < Duration::from_millis(250) {
            continue;
        }
        asked = Instant::now();
        tables.hurry().await?;
        let delivered = processes.sums().map(|sum| sum.delivered).sum();
        let progress = tables.progress().await?;
        if (delivered, progress) != (moved.1, moved.2) {
            moved = (Instant::now(), delivered, progress);
        }
        // Deliveries in transit to a worker are not counted as in hand yet.
        let idle = processes.busy().is_empty() && progress.scheduled == 0 && left(broker).await? == 0;
        all |= provide(supply, disruptions, processes, broker, idle).await?;
        // Each message is processed or dead.
        let over = progress.processed + progress.dead >= plan.orders.len() as u64;
        let settled =
            idle && over && supply.is_over() && disruptions.kills.have_come_again(processes, |id| plan.times(id));
        // No change for a second: what a killed worker had in hand may be on its way back to the broker.
        if settled && moved.0.elapsed() > Duration::from_secs(1)
            || moved.0.elapsed() > QUIET
            || start.elapsed() > LONGEST
        {
            return Ok(moved.0);
        }
    }
}

/// Publishes more if the workers have run out of work while something is still to be done to them: a little, which they
/// hold for a while. Publishes the rest once nothing is to be done any more. Returns whether they get work to hold, so
/// that the next kill, move or fault is due.
pub(crate) async fn provide<B: Broker>(
    supply: &mut Supply,
    disruptions: &Disruptions,
    processes: &mut Processes,
    broker: &B,
    idle: bool,
) -> Result<bool> {
    if disruptions.outstanding() == 0 {
        processes.signals.release()?;
        supply.rest(broker).await?;
        return Ok(false);
    }
    let holds = idle && !supply.is_over();
    if holds {
        processes.signals.hold()?;
        supply.some(broker).await?;
    }
    Ok(holds)
}

/// Returns how many messages are with the broker. It may not answer at once after a restart.
pub(crate) async fn left<B: Broker>(broker: &B) -> Result<u64> {
    let start = Instant::now();
    loop {
        match broker.left().await {
            Ok(left) => return Ok(left),
            Err(error) if start.elapsed() > QUIET => return Err(error).context("the broker does not answer"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Returns a client of a broker that has just been restarted.
pub(crate) async fn reconnected<B: Broker>(address: &str, name: &str) -> Result<B> {
    let start = Instant::now();
    loop {
        match B::connect(address, name).await {
            Ok(broker) => return Ok(broker),
            Err(error) if start.elapsed() > QUIET => return Err(error).context("the broker does not come back"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Returns the directory to which the processes of a run with this name write.
pub(crate) fn directory(name: &str) -> PathBuf {
    let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = demo.ancestors().nth(2).map(PathBuf::from).unwrap_or(demo);
    root.join("target").join("demo").join(name.replace(' ', "-"))
}
