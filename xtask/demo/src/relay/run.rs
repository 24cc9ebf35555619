//! One run, in order: tables, broker, events, processes, kills and faults, drain, ledger.

use std::time::Instant;

use anyhow::Result;
use fastrand::Rng;
use idem_brokers::Broker;

use super::drain::{Chain, drain};
use super::handlers::RELAYED;
use super::judge::{Found, Verdict};
use super::ledger::Ledger;
use super::link::Link;
use super::rows;
use crate::disruptions::Disruptions;
use crate::faults::Fault;
use crate::journal::Sum;
use crate::ledger::Done;
use crate::load::Load;
use crate::mode::Mode;
use crate::plan::{ACCOUNTS, Plan};
use crate::processes::Processes;
use crate::run::{SPARE, directory, left};
use crate::servers::{DATABASE, Servers};
use crate::supply::Supply;
use crate::tables::Tables;
use crate::worker::NAME;

/// How often a relay is killed by default.
const KILLS: usize = 20;
/// How many messages a key has on average.
const EACH: u64 = 40;
/// The fewest keys: with fewer, the handlers would wait for each other most of the time.
const FEWEST: i32 = 20;

/// The settings of the runs.
pub(crate) struct Settings<'a> {
    pub(crate) load: &'a Load,
    /// How the worker that stages consumes.
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
}

/// Performs a run and returns the outcomes of the messages.
pub(super) async fn run<B: Broker>(settings: &Settings<'_>, servers: &mut Servers) -> Result<Ledger> {
    let Settings { load, mode, seed } = *settings;
    let mut rng = Rng::with_seed(seed);
    let accounts = i32::try_from(load.messages / EACH).unwrap_or(ACCOUNTS).clamp(FEWEST, ACCOUNTS);
    let plan = Plan::plain(load.messages, load.duplicates, accounts, &mut rng);
    let mut tables = Tables::new(servers.database()).await?;
    rows::create(&mut tables, servers.database()).await?;
    let mut broker = B::connect(servers.broker(), NAME).await?;
    broker.create().await?;
    let mut target = B::connect(servers.broker(), RELAYED).await?;
    target.create_recording().await?;
    let faults = [Fault::Freeze, Fault::Restart];
    let mut disruptions = Disruptions::new(load.kills.unwrap_or(KILLS), &faults, &plan, &mut rng);
    let payloads = plan.published.iter().map(|at| plan.orders[*at].payload()).collect::<Result<Vec<_>>>()?;
    let mut supply = Supply::publish(payloads, disruptions.outstanding() + SPARE, &broker).await?;

    let start = Instant::now();
    let (mut stage, mut relays, mut take) = (
        processes::<B>(Link::Stage, mode, servers)?,
        processes::<B>(Link::Relay, mode, servers)?,
        processes::<B>(Link::Take, mode, servers)?,
    );
    stage.start()?;
    take.start()?;
    for _ in 0..load.workers {
        relays.start()?;
    }
    let chain = Chain { stage: &mut stage, relays: &mut relays, take: &mut take };
    let moved =
        drain(chain, &mut disruptions, &mut tables, (&mut broker, &mut target, &mut supply, servers), &plan, &mut rng)
            .await?;
    for processes in [&mut stage, &mut relays, &mut take] {
        processes.dismiss().await?;
    }

    let found = Found {
        staged: rows::staged(&mut tables).await?,
        taken: rows::taken(&mut tables).await?,
        recorded: target.recorded().await?,
        progress: rows::progress(&mut tables).await?,
        left: left(&broker).await? + left(&target).await?,
    };
    let Disruptions { kills, moves, faults } = &disruptions;
    let done = Done { processes: &relays, kills, moves, faults, took: moved.duration_since(start) };
    let copies = count(&take, |sum| sum.duplicates);
    Ok(Ledger::new(Verdict::new(load.messages, &found)?, copies, count(&relays, |sum| sum.delivered), &done))
}

fn count(processes: &Processes, of: fn(&Sum) -> u64) -> u64 {
    processes.sums().map(of).sum()
}

/// Returns the processes of this kind, none of which is started.
fn processes<B: Broker>(link: Link, mode: Mode, servers: &Servers) -> Result<Processes> {
    let call = ["link", link.name(), B::NAME].map(str::to_owned).into_iter().chain(mode.args()).collect();
    let env = vec![(DATABASE, servers.database().to_owned()), (B::VARIABLE, servers.broker().to_owned())];
    Processes::new(link.name(), &directory(&format!("{} relay {link}", B::NAME)), call, env)
}
