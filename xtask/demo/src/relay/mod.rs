//! The run of the outbox: relays are killed between a consumer that stages messages and one that takes them.
//!
//! | file | contents |
//! |---|---|
//! | `handlers` | the two consumers' handlers, and the message between them |
//! | `judge` | the outcome of each message |
//!
//! **The order within a key** is read from the broker, by a plain client, after the end: a stream of NATS and a topic of
//! Kafka keep what was taken, and on RabbitMQ and SQS a second queue gets each message as well. The consumer would prove
//! less. It receives messages again that were on their way to it when the broker was restarted, on NATS behind later ones, so
//! that its order would be that of the redeliveries and not that of the relays. A message counts where it arrives for
//! the first time, because a copy may arrive behind a later message of its key.

pub(crate) mod handlers;
mod judge;

use anyhow::{Result, ensure};
use fastrand::Rng;
use idem::Postgres;
use idem_brokers::Broker;
use sqlx::Row;

use self::handlers::Paid;
use self::judge::{Found, Verdict};
use crate::campaign::{Ledger, Run};
use crate::disruptions::{Disruptions, Event};
use crate::harness::{Scene, directory};
use crate::plan::{ACCOUNTS, Plan};
use crate::processes::{Processes, Servers};
use crate::run::check_disruptions;
use crate::tables::{Tables, unsigned};
use crate::worker::{NAME, Role};

/// The schema of the consumer that takes.
pub(crate) const TAKEN: &str = "idem_demo_taken";

/// How often a relay is killed by default.
const KILLS: usize = 20;
/// How many messages a key has on average.
const EACH: u64 = 40;
/// The fewest keys: with fewer, the handlers would wait for each other most of the time.
const FEWEST: i32 = 20;

/// Messages that were taken; dead letters of the outbox and of both consumers; messages that wait in the outbox, and rows
/// that wait in an inbox.
const PROGRESS: &str = "SELECT (SELECT count(*) FROM demo.taken),
    (SELECT count(*) FROM idem_demo.inbox_messages WHERE state = 'dead')
        + (SELECT count(*) FROM idem_demo_taken.inbox_messages WHERE state = 'dead')
        + (SELECT count(*) FROM idem_demo.outbox_dead),
    (SELECT count(*) FROM idem_demo.outbox_messages)
        + (SELECT count(*) FROM idem_demo.inbox_messages WHERE state <> 'dead')
        + (SELECT count(*) FROM idem_demo_taken.inbox_messages WHERE state <> 'dead')";

/// Performs a run and returns the outcomes of the messages.
pub(crate) async fn run<B: Broker>(run: &Run, servers: &mut Servers) -> Result<Ledger> {
    ensure!(!run.mode.whole, "`--relay` and `--whole` do not go together: messages of batch handlers have random ids");
    let mut rng = Rng::with_seed(run.seed);
    let messages = run.load.messages;
    let accounts = i32::try_from(messages / EACH).unwrap_or(ACCOUNTS).clamp(FEWEST, ACCOUNTS);
    let plan = Plan::plain(messages, run.load.duplicates, accounts, &mut rng);
    let tables = tables(servers.database()).await?;
    let (broker, target) = (B::connect(servers.broker(), NAME).await?, B::connect(servers.broker(), B::RELAYED).await?);
    broker.create().await?;
    target.create_recording().await?;
    let directory = |role: &str| directory(&format!("{} {role}", run.name()));
    let mut processes = Vec::new();
    for (role, count) in [(Role::Relay, run.load.workers), (Role::Stage, 1), (Role::Take, 1)] {
        processes.push((Processes::new::<B>(role, run.mode, &directory(&role.name()), servers)?, count));
    }
    let (kills, faults) = (run.load.kills.unwrap_or(KILLS), [Event::Freeze, Event::Restart]);
    let mut scene = Scene {
        disruptions: Disruptions::new(kills, &faults, messages, &mut rng),
        plan: &plan,
        servers,
        tables,
        brokers: vec![(NAME, broker), (B::RELAYED, target)],
        processes,
        progress: PROGRESS,
        // A confirmed message is published again if its relay dies before it has deleted it.
        times: |_, _| 1,
    };
    let took = scene.play(&mut rng).await?;
    let found = Found {
        staged: paid(&scene.tables, "SELECT message, account, place FROM demo.staged").await?,
        taken: paid(&scene.tables, "SELECT message, account, place FROM demo.taken").await?,
        recorded: scene.brokers[1].1.recorded().await?,
        progress: scene.tables.progress(PROGRESS).await?,
        left: scene.left().await?,
    };
    let verdict = Verdict::new(messages, &found)?;
    let mut wrong = verdict.deviations();
    check_disruptions(&scene, |holds, text| wrong.extend((!holds).then_some(text)));
    let Verdict { staged, relayed, lost, doubled, disordered, dead, .. } = verdict;
    let line = format!(
        "{messages} events, {staged} staged, {relayed} relayed in {} calls, {} copies seen by the second consumer, lost {lost}, \
         doubled {doubled}, out of order within a key {disordered}, dead {dead}, {} relay deaths ({} between confirm and \
         delete), {} server faults, {:.0} s",
        scene.count(0, |sum| sum.delivered),
        scene.count(2, |sum| sum.duplicates),
        scene.disruptions.kills.len(),
        scene.disruptions.before_ack().count(),
        scene.disruptions.faults,
        took.as_secs_f64(),
    );
    Ok(Ledger { line, wrong })
}

/// Creates the tables of both consumers. They have no unique constraints: what is doubled must be visible.
async fn tables(url: &str) -> Result<Tables> {
    let tables = Tables::new(url).await?;
    for statement in [
        "DROP SCHEMA IF EXISTS idem_demo_taken CASCADE",
        "CREATE TABLE demo.staged (message bigint NOT NULL, account int NOT NULL, place bigint NOT NULL)",
        "CREATE TABLE demo.taken (message bigint NOT NULL, account int NOT NULL, place bigint NOT NULL)",
    ] {
        tables.rows(statement, &[]).await?;
    }
    drop(Postgres::options(url).schema(TAKEN).connect().await?);
    Ok(tables)
}

async fn paid(tables: &Tables, sql: &'static str) -> Result<Vec<Paid>> {
    let rows = tables.rows(sql, &[]).await?;
    Ok(rows.iter().map(|row| Paid { id: unsigned(row, 0), account: row.get(1), place: row.get(2) }).collect())
}
