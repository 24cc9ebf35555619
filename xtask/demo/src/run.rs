//! The demo, in order: tables, broker, messages, workers, kills, drain, ledger.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::Result;
use fastrand::Rng;
use idem_brokers::Broker;

use crate::crew::Crew;
use crate::kills::Kills;
use crate::ledger::Ledger;
use crate::moves::Moves;
use crate::plan::Plan;
use crate::tables::{Progress, Tables};
use crate::worker::NAME;
use crate::{Options, Servers};

/// Nothing that has to come takes that long: a retry waits for less than 2 s, the lease of a dead worker is 2 s.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) async fn demo<B: Broker>(options: &Options) -> Result<()> {
    let servers = Servers::of::<B>()?;
    let seed = options.seed.unwrap_or_else(|| fastrand::u64(..1_000_000));
    let mut rng = Rng::with_seed(seed);
    let plan = Plan::new(options.messages, options.duplicates, &mut rng);
    let mut kills = Kills::new(options.kills, &plan, &mut rng);
    let mut moves = Moves::new(plan.published.len() as u64, &mut rng);
    println!("seed {seed}");

    let mut tables = Tables::new(&servers).await?;
    let broker = B::connect(&servers.broker, NAME).await?;
    broker.create().await?;
    let mut call = vec!["worker".to_owned(), B::NAME.to_owned(), format!("--batch={}", options.mode.batch)];
    call.extend(options.mode.inbox.then(|| "--inbox".to_owned()));
    let mut crew = Crew::new(&directory(), call)?;

    let payloads = plan.published.iter().map(serde_json::to_vec).collect::<Result<Vec<_>, _>>()?;
    broker.publish(&payloads).await?;
    println!("{} deliveries of {} messages published and confirmed", plan.published.len(), plan.orders.len());

    let start = Instant::now();
    for _ in 0..options.workers {
        crew.start()?;
    }
    let drained = drain(&mut crew, (&mut kills, &mut moves), &mut tables, &broker, &mut rng).await?;
    let took = drained.duration_since(start);
    crew.dismiss().await?;

    let ledger = Ledger::new(&plan, &crew, (&kills, &moves), &mut tables, broker.left().await?, took).await?;
    println!("\n{ledger}");
    ledger.verdict()?;
    // Kept for whoever wants to look, if the verdict was another.
    broker.delete().await?;
    tables.drop().await
}

/// Waits until all is settled, killing meanwhile; or until nothing has moved for a minute, which the ledger then shows.
/// Answers when the last thing moved.
async fn drain(
    crew: &mut Crew,
    (kills, moves): (&mut Kills, &mut Moves),
    tables: &mut Tables,
    broker: &impl Broker,
    rng: &mut Rng,
) -> Result<Instant> {
    let mut moved = (Instant::now(), 0, Progress::default());
    let mut asked = Instant::now();
    loop {
        tokio::time::sleep(Duration::from_millis(5)).await;
        crew.look()?;
        kills.strike(crew, tables, moved.2.processed, rng).await?;
        moves.make(crew, rng).await?;
        if asked.elapsed() < Duration::from_millis(250) {
            continue;
        }
        asked = Instant::now();
        let delivered = crew.sums().map(|sum| sum.delivered).sum();
        let progress = tables.progress().await?;
        if (delivered, progress) != (moved.1, moved.2) {
            moved = (Instant::now(), delivered, progress);
        }
        let settled = crew.busy().is_empty() && progress.parked == 0 && broker.left().await? == 0;
        // Twice without a change: what a killed worker had in hand may be on its way back to the broker.
        if settled && moved.0.elapsed() > Duration::from_secs(1) || moved.0.elapsed() > PATIENCE {
            return Ok(moved.0);
        }
    }
}

/// Where the workers write.
fn directory() -> PathBuf {
    let demo = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    demo.ancestors().nth(2).map(PathBuf::from).unwrap_or(demo).join("target").join("demo")
}
