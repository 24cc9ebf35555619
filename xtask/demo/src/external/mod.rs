//! Orders that are paid for at a provider while workers are killed: `cargo xtask demo external`.
//!
//! | file | contents |
//! |---|---|
//! | `plan` | which requests fail, which rows are held beyond the life of their key, and what an operator does about rows |
//! | `handlers` | a handler with an external call, and a naive one; the provider as a server, and its client |
//! | `judge` | the verdict on both runs |

pub(crate) mod handlers;
mod judge;
mod plan;

use std::collections::BTreeSet;

use anyhow::{Result, bail};
use fastrand::Rng;
use idem_brokers::{Broker, Nats};
use idem_test::provider::Provider;
use sqlx::Row;
use tokio::task::JoinSet;

use self::judge::{Charged, Outcome, judge};
use crate::campaign::{Load, Mode};
use crate::disruptions::Disruptions;
use crate::harness::{Scene, directory};
use crate::plan::{Plan, number};
use crate::processes::{Processes, Servers};
use crate::run::check_disruptions;
use crate::tables::{Progress, Tables, unsigned};
use crate::worker::{NAME, Role};

/// How often a worker is killed by default.
const KILLS: usize = 50;

/// Messages that are paid for; unresolved ones; all others that wait, those included that an operator will resolve.
const CALLED: &str = "SELECT (SELECT count(DISTINCT message) FROM demo.payments),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'dead' AND reason = 'unresolved'),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state <> 'dead' OR reason <> 'unresolved')";

/// As [`CALLED`]. The naive handler leaves dead letters of any reason.
const NAIVE: &str = "SELECT (SELECT count(DISTINCT message) FROM demo.payments),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'dead'),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state <> 'dead')";

/// Runs workers with external calls, and fewer with a naive handler. Fails as [`judge()`] does, or if a kill did not happen.
pub(crate) async fn run(load: &Load, mode: Mode, seed: u64) -> Result<()> {
    println!("seed {seed}");
    let mut servers = Servers::start::<Nats>().await?;
    let mut rng = Rng::with_seed(seed);
    let kills = load.kills.unwrap_or(KILLS);
    let load = Load { kills: Some(kills), ..load.clone() };
    let requests = plan::requests(load.messages, &mut rng);
    let (outcome, charged) = once(Role::Call, (&load, mode), &requests, &mut servers, &mut rng).await?;
    let (_, held) = requests;
    println!("external calls: {charged:?} of {} held; {outcome:?}", held.len());
    let few = Load { messages: (load.messages / 10).max(100), kills: Some(kills.div_ceil(5)), ..load.clone() };
    let requests = plan::requests(few.messages, &mut rng);
    let (naive, doubled) = once(Role::Naive, (&few, mode), &requests, &mut servers, &mut rng).await?;
    println!("naive handler:  {doubled:?}; {naive:?}");
    judge(load.messages, &held, &outcome, charged, doubled)
}

/// Runs workers until each message is paid for or dead, and kills them meanwhile.
async fn once(
    role: Role,
    (load, mode): (&Load, Mode),
    (provider, held): &(Provider, BTreeSet<u64>),
    servers: &mut Servers,
    rng: &mut Rng,
) -> Result<(Outcome, Charged)> {
    let plan = Plan::plain(load.messages, load.duplicates, 1, rng);
    let tables = Tables::new(servers.database()).await?;
    // No unique constraints: what is doubled must be visible.
    tables.rows("CREATE TABLE demo.payments (message bigint NOT NULL, charge text NOT NULL)", &[]).await?;
    let broker = Nats::connect(servers.broker(), NAME).await?;
    broker.create().await?;
    let address = handlers::serve(provider.clone()).await?;
    let directory = directory(&format!("external {}", role.name()));
    let mut processes = Processes::new::<Nats>(role, mode, &directory, servers)?;
    processes.give(&["--provider", &address.to_string()]);
    let mut operator = JoinSet::new();
    operator.spawn(plan::operate(servers.database().to_owned(), held.clone()));
    let mut scene = Scene {
        disruptions: Disruptions::new(load.kills.unwrap_or(KILLS), &[], load.messages, rng),
        plan: &plan,
        servers,
        tables,
        brokers: vec![(NAME, broker)],
        processes: vec![(processes, load.workers)],
        progress: if role == Role::Call { CALLED } else { NAIVE },
        times: Plan::times,
    };
    let took = scene.play(rng).await?;
    if let Some(ended) = operator.try_join_next() {
        ended??;
    }
    operator.shutdown().await;
    println!("{role:?}: {} messages and {} kills in {took:?}", load.messages, scene.disruptions.kills.len());
    let mut wrong = Vec::new();
    check_disruptions(&scene, |holds, text| wrong.extend((!holds).then_some(text)));
    if !wrong.is_empty() {
        bail!("not all is as it must be:\n{}", wrong.join("\n"));
    }
    Ok((outcome(&scene.tables).await?, Charged::new(provider, load.messages)))
}

/// Returns what became of the messages.
async fn outcome(tables: &Tables) -> Result<Outcome> {
    let Progress { done: paid, waiting: others, .. } = tables.progress(CALLED).await?;
    let unresolved = "SELECT convert_from(key, 'UTF8') FROM idem_demo.inbox_messages
        WHERE state = 'dead' AND reason = 'unresolved'";
    let keys = tables.rows(unresolved, &[]).await?;
    let twice = tables.row("SELECT count(*) - count(DISTINCT message) FROM demo.payments", &[]).await?;
    Ok(Outcome {
        paid,
        paid_twice: unsigned(&twice, 0),
        unresolved: keys.iter().filter_map(|row| number(row.get(0))).collect(),
        others,
    })
}
