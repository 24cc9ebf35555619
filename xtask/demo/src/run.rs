//! A run of workers, its totals, and what every run must have done.

use std::collections::HashMap;
use std::time::Duration;

use anyhow::Result;
use fastrand::Rng;
use idem_brokers::Broker;

use crate::campaign::{Ledger, Run};
use crate::disruptions::Disruptions;
use crate::harness::{Scene, directory};
use crate::plan::{Behaviour, Plan};
use crate::processes::{Processes, Servers};
use crate::tables::Tables;
use crate::verdict::{Found, Verdict};
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
    let ledger = ledger(&scene, took).await?;
    scene.brokers[0].1.delete().await?;
    Ok(ledger)
}

/// How many processes a message may end before it becomes a dead letter.
const DEATHS: u64 = 5;

/// Judges a run of workers.
async fn ledger<B: Broker>(scene: &Scene<'_, B>, took: Duration) -> Result<Ledger> {
    let tables = &scene.tables;
    let found =
        Found { effects: tables.effects().await?, inbox: tables.inbox().await?, claims: tables.claims().await? };
    let (astray, balance) = tables.balance().await?;
    let (plan, processes) = (scene.plan, scene.victims());
    let verdict = Verdict::new(plan, |id| processes.died_with(id), &found);
    let left = scene.left().await?;
    let mut wrong = Vec::new();
    let mut must = |holds: bool, text: String| wrong.extend((!holds).then_some(text));
    must(left == 0, format!("{left} messages are still with the broker"));
    must(astray == 0, format!("{astray} accounts have another balance than their effects come to"));
    let amounts = found.effects.iter().map(|(id, effects)| {
        let order = usize::try_from(*id).ok().and_then(|id| plan.orders.get(id));
        order.map_or(0, |order| order.amount) * i64::try_from(*effects).unwrap_or(0)
    });
    let due: i64 = amounts.sum();
    must(due == balance, format!("the balance is {balance}, and that of the messages is {due}"));
    check_disruptions(scene, &mut must);
    check_killers(plan, processes, must);
    let agrees = if astray == 0 && due == balance { "agrees" } else { "DISAGREES" };
    wrong.extend(verdict.wrong);
    let dead: Vec<String> = verdict.dead.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
    let unwritten = match verdict.unwritten {
        0 => String::new(),
        count => format!(", {count} killed behind its own COMMIT"),
    };
    let effects: u64 = found.effects.values().sum();
    let line = format!(
        "{} events, {} copies, {effects} effects, lost {}, doubled {}, dead {} ({}){unwritten}, balance {balance} {agrees}, \
         {} process deaths ({} before their ack), {} server faults, {:.0} msg/s, {:.0} s",
        plan.orders.len(),
        plan.published.len() - plan.orders.len(),
        verdict.lost,
        verdict.doubled,
        verdict.dead.values().sum::<u64>(),
        dead.join(", "),
        scene.disruptions.kills.len() + processes.killers.len(),
        scene.disruptions.before_ack().count(),
        scene.disruptions.faults,
        scene.count(0, |sum| sum.delivered) as f64 / took.as_secs_f64(),
        took.as_secs_f64(),
    );
    Ok(Ledger { line, wrong })
}

/// Checks that everything planned for the processes and servers was done and had the intended effect.
pub(crate) fn check_disruptions<B: Broker>(scene: &Scene<'_, B>, mut must: impl FnMut(bool, String)) {
    let (done, kills) = (&scene.disruptions, scene.disruptions.kills_left());
    let events = done.events_left();
    must(kills == 0, format!("{kills} kills did not happen: there was no work left"));
    must(
        events == 0,
        format!("{events} faults did not happen, or processes did not join or leave: there was no work left"),
    );
    must(done.kills.iter().all(|kill| kill.in_hand > 0), "a kill hit an idle process".to_owned());
    for (id, committed) in done.before_ack() {
        must(committed, format!("message {id} had no commit when its process was killed"));
        must(scene.came_again(id), format!("message {id} did not come again after its process was killed"));
    }
    let before_ack = done.before_ack().next().is_some();
    must(before_ack || done.kills.is_empty(), "no kill was between commit and ack".to_owned());
}

/// Checks that each message that ends its process ended as many as it may.
fn check_killers(plan: &Plan, processes: &Processes, mut must: impl FnMut(bool, String)) {
    let mut deaths = HashMap::<u64, u64>::new();
    processes.killers.iter().for_each(|id| *deaths.entry(*id).or_default() += 1);
    for order in plan.orders.iter().filter(|order| order.behaviour == Behaviour::Killer) {
        let times = deaths.get(&order.id).copied().unwrap_or(0);
        // A copy that is delivered before the message is stored runs directly as well.
        let copies = plan.times(order.id) - 1;
        must((1..=DEATHS + copies).contains(&times), format!("message {} ended {times} processes", order.id));
    }
}
