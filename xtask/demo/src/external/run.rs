//! A run with external calls, and one with a naive handler.

use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use idem_test::provider::Provider;
use tokio::process::{Child, Command};
use tokio::task::spawn_blocking;

use super::judge::{Charged, judge};
use super::payer::How;
use super::plan::Plan;
use super::provider;
use super::rows::{Outcome, Rows};
use crate::servers::DATABASE;

/// The settings of a run.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Settings {
    #[arg(long, default_value_t = 20_000)]
    messages: u64,
    #[arg(long, default_value_t = 50)]
    kills: u32,
    /// The seed; the same seed gives the same random choices.
    #[arg(long)]
    seed: Option<u64>,
}

/// How many workers run at once.
const WORKERS: usize = 2;
/// How long a run may take.
const LIMIT: Duration = Duration::from_secs(900);

/// Runs both, and fails as [`judge`] does. `seed` is for settings that have none.
pub(crate) async fn run(settings: &Settings, seed: u64) -> Result<()> {
    let seed = settings.seed.unwrap_or(seed);
    println!("seed {seed}");
    let server = spawn_blocking(idem_services::Postgres::start).await??;
    let mut random = fastrand::Rng::with_seed(seed);
    let plan = Plan::new(settings.messages, &mut random);
    let (outcome, provider) = once(server.url(), How::Called, settings, &plan, &mut random).await?;
    let charged = Charged::new(&provider, settings.messages);
    println!(
        "external calls: {} paid, charged twice {}, not charged {}, unresolved {} of {} held; {outcome:?}",
        outcome.paid,
        charged.twice,
        charged.never,
        outcome.unresolved.len(),
        plan.held.len()
    );
    let small = Settings { messages: settings.messages / 10, kills: settings.kills.div_ceil(5), ..settings.clone() };
    let few = Plan::new(small.messages, &mut random);
    let (naive, provider) = once(server.url(), How::Naive, &small, &few, &mut random).await?;
    let doubled = Charged::new(&provider, small.messages);
    println!("naive handler:  {} paid, charged twice {}; {naive:?}", naive.paid, doubled.twice);
    judge(settings.messages, &plan.held, &outcome, charged, doubled)
}

/// Runs workers until no message is scheduled, and kills them meanwhile.
async fn once(
    database: &str,
    how: How,
    settings: &Settings,
    plan: &Plan,
    random: &mut fastrand::Rng,
) -> Result<(Outcome, Provider)> {
    let rows = Rows::new(database, how, settings.messages).await?;
    let provider = plan.provider();
    let address = provider::serve(provider.clone()).await?.to_string();
    let start = || -> Result<Child> {
        let name = if how == How::Called { "called" } else { "naive" };
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["payer", name, &address]).env(DATABASE, database).kill_on_drop(true);
        Ok(command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()?)
    };
    let mut workers = (0..WORKERS).map(|_| start()).collect::<Result<Vec<_>>>()?;
    let (began, mut kills) = (Instant::now(), 0);
    loop {
        tokio::time::sleep(Duration::from_millis(random.u64(300..900))).await;
        rows.hold(&plan.held).await?;
        if kills < settings.kills {
            let place = random.usize(..WORKERS);
            workers[place].kill().await?;
            workers[place] = start()?;
            kills += 1;
        }
        if kills == settings.kills && rows.scheduled().await? == 0 && rows.call_again().await? == 0 {
            break;
        }
        if began.elapsed() > LIMIT {
            bail!("{} messages are still scheduled after {LIMIT:?}", rows.scheduled().await?);
        }
    }
    println!("{how:?}: {} messages and {kills} kills in {:?}", settings.messages, began.elapsed());
    for mut worker in workers {
        worker.kill().await?;
    }
    Ok((rows.outcome().await?, provider))
}
