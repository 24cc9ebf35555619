//! One run, in order: tables, broker, messages, workers, kills and faults, drain, ledger.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use fastrand::Rng;
use idem_brokers::Broker;

use crate::Load;
use crate::crew::Crew;
use crate::faults::{Fault, Faults};
use crate::kills::Kills;
use crate::ledger::{Done, Ledger};
use crate::mode::Mode;
use crate::moves::Moves;
use crate::plan::Plan;
use crate::servers::{DATABASE, Servers};
use crate::tables::{Progress, Tables};
use crate::worker::NAME;

/// Longer than any expected delay: a retry waits for less than 2 s, and the lease of a dead worker is 1 s.
const QUIET: Duration = Duration::from_secs(40);
/// The limit for a run that never comes to rest.
const LONGEST: Duration = Duration::from_secs(240);

/// Everything that is done to the workers and the servers.
struct Deeds {
    kills: Kills,
    moves: Moves,
    faults: Faults,
}

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
    let mut crew = Crew::new(&directory(B::NAME, mode), call, env)?;
    let mut deeds = Deeds {
        kills: Kills::new(load.kills, &plan, &mut crew, &mut rng),
        moves: Moves::new(plan.published.len() as u64, &mut rng),
        faults: Faults::new(faults, plan.effects()),
    };
    let payloads = plan.published.iter().map(|at| plan.orders[*at].payload()).collect::<Result<Vec<_>>>()?;
    broker.publish(&payloads).await?;

    let start = Instant::now();
    for _ in 0..load.workers {
        crew.start()?;
    }
    let moved = drain(&mut crew, &mut deeds, &mut tables, (&mut broker, servers), &plan, &mut rng).await?;
    crew.dismiss().await?;
    let left = broker.left().await?;
    let Deeds { kills, moves, faults } = &deeds;
    let done = Done { crew: &crew, kills, moves, faults, took: moved.duration_since(start) };
    let ledger = Ledger::new(&plan, &done, &mut tables, left).await?;
    broker.delete().await?;
    Ok(ledger)
}

/// Waits until all messages are settled, performing the planned kills and faults meanwhile, or until there is no
/// progress for a while, which the ledger then shows. Returns the time of the last progress.
async fn drain<B: Broker>(
    crew: &mut Crew,
    deeds: &mut Deeds,
    tables: &mut Tables,
    (broker, servers): (&mut B, &mut Servers),
    plan: &Plan,
    rng: &mut Rng,
) -> Result<Instant> {
    let start = Instant::now();
    let mut moved = (Instant::now(), 0, Progress::default());
    let mut asked = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        crew.look()?;
        deeds.kills.strike(crew, (tables, plan), moved.2.processed, rng).await?;
        deeds.moves.make(crew, rng).await?;
        let fault = deeds.faults.strike(servers, moved.2.processed).await?;
        if fault == Some(Fault::Restart) {
            *broker = reconnected(servers.broker()).await?;
        }
        if asked.elapsed() < Duration::from_millis(250) {
            continue;
        }
        asked = Instant::now();
        tables.hurry().await?;
        let delivered = crew.sums().map(|sum| sum.delivered).sum();
        let progress = tables.progress().await?;
        if (delivered, progress) != (moved.1, moved.2) {
            moved = (Instant::now(), delivered, progress);
        }
        // Each message is processed or dead. Deliveries in transit to a worker are not counted as in hand yet.
        let all = progress.processed + progress.dead >= plan.orders.len() as u64;
        let settled = all && crew.busy().is_empty() && progress.scheduled == 0 && broker.left().await? == 0;
        // No change for a second: what a killed worker had in hand may be on its way back to the broker.
        if settled && moved.0.elapsed() > Duration::from_secs(1)
            || moved.0.elapsed() > QUIET
            || start.elapsed() > LONGEST
        {
            return Ok(moved.0);
        }
    }
}

/// Returns a client of a broker that has just been restarted.
async fn reconnected<B: Broker>(address: &str) -> Result<B> {
    let start = Instant::now();
    loop {
        match B::connect(address, NAME).await {
            Ok(broker) => return Ok(broker),
            Err(error) if start.elapsed() > QUIET => return Err(error).context("the broker does not come back"),
            Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

/// Returns the directory to which the workers write.
pub(crate) fn directory(broker: &str, mode: Mode) -> PathBuf {
    let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let root = demo.ancestors().nth(2).map(PathBuf::from).unwrap_or(demo);
    root.join("target").join("demo").join(format!("{broker} {mode}").replace(' ', "-"))
}
