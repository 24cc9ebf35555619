//! A run of workers.

use anyhow::Result;
use fastrand::Rng;
use idem_brokers::Broker;

use crate::campaign::{Ledger, Run};
use crate::disruptions::Disruptions;
use crate::harness::{Scene, directory};
use crate::ledger;
use crate::plan::Plan;
use crate::processes::Processes;
use crate::servers::Servers;
use crate::tables::Tables;
use crate::worker::{NAME, Role};

/// How often a worker is killed by default.
const KILLS: usize = 5;

/// Claims with a date; dead letters; rows that wait in the inbox.
const PROGRESS: &str = "SELECT (SELECT count(*) FROM idem_demo.processed_messages WHERE processed_at IS NOT NULL),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'dead'),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state <> 'dead')";

/// Performs a run and returns the outcomes of the messages.
pub(crate) async fn run<B: Broker>(run: &Run, servers: &mut Servers) -> Result<Ledger> {
    let mut rng = Rng::with_seed(run.seed);
    let plan = Plan::new(run.load.messages, run.load.duplicates, &mut rng);
    let tables = Tables::new(servers.database()).await?;
    let broker = B::connect(servers.broker(), NAME).await?;
    broker.create().await?;
    let processes = Processes::new::<B>(Role::Pay, run.mode, &directory(&run.name()), servers)?;
    let kills = run.load.kills.unwrap_or(KILLS);
    let mut scene = Scene {
        disruptions: Disruptions::new(kills, &run.faults, plan.orders.len() as u64, &mut rng),
        plan: &plan,
        servers,
        tables,
        brokers: vec![(NAME, broker)],
        processes: vec![(processes, run.load.workers)],
        progress: PROGRESS,
        times: Plan::times,
    };
    let took = scene.play(&mut rng).await?;
    let ledger = ledger::of(&scene, took).await?;
    scene.brokers[0].1.delete().await?;
    Ok(ledger)
}
