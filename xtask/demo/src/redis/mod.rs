//! Workers that deduplicate in Redis, which are killed, and so is Redis: `cargo xtask demo redis`.
//!
//! | file | contents |
//! |---|---|
//! | this one | the runs, and the verdict on each |
//! | `server` | Redis, which is killed, and forgets what a power failure would |
//! | `worker` | the processes that are killed: a worker, and the loop with `SET NX` for comparison |

mod server;
pub(crate) mod worker;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use fastrand::Rng;
use idem_brokers::{Broker, Nats};
use idem_services::Instance;
use tokio::task::spawn_blocking;

use self::server::{Death, Server};
use self::worker::{Consumer, EFFECTS, Event, NAME, REDIS};
use crate::campaign::Load;
use crate::harness::directory;
use crate::restarted::Restarted;

/// How often a worker is killed by default.
const KILLS: usize = 10;
/// How often Redis is killed beside workers.
const SERVER_KILLS: usize = 3;
/// For how long nothing may happen.
const QUIET: Duration = Duration::from_secs(60);

/// A run.
struct Run {
    name: &'static str,
    consumer: Consumer,
    /// The lines of its configuration in which Redis differs.
    settings: &'static str,
    /// How often each happens.
    kills: usize,
    deaths: usize,
    death: Death,
    /// The part of the messages that it has: what is lost shows with few.
    share: u64,
}

/// The outcomes of a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ledger {
    /// Events that were acked, and have neither an effect nor a dead letter.
    lost: usize,
    /// Events with several effects.
    doubled: usize,
    /// Dead letters.
    dead: usize,
}

/// Plays the runs. Fails if the worker whose Redis syncs always has lost, doubled or buried an event. What other settings, and the
/// loop, lose is only printed.
pub(crate) async fn run(load: &Load, seed: u64) -> Result<()> {
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let nats = spawn_blocking(idem_services::Nats::start).await??;
    let kills = load.kills.unwrap_or(KILLS);
    let run =
        |name, consumer| Run { name, consumer, settings: "", kills: 0, deaths: 0, death: Death::Killed, share: 4 };
    let runs = [
        Run { kills, deaths: SERVER_KILLS, share: 1, ..run("idem, appendfsync always", Consumer::Idem) },
        Run {
            settings: "appendfsync everysec",
            deaths: 1,
            death: Death::PowerFailure,
            ..run("idem, appendfsync everysec, power failure", Consumer::Idem)
        },
        Run { settings: "appendonly no", deaths: 1, ..run("idem, appendonly no", Consumer::Idem) },
        Run { kills, ..run("SET NX, appendfsync always", Consumer::SetNx) },
    ];
    let mut ledgers = Vec::new();
    for run in &runs {
        let messages = (load.messages / run.share).max(200);
        let ledger = once(run, load, messages, &nats, &mut rng).await.with_context(|| run.name.to_owned())?;
        println!("{:42} {ledger}", run.name);
        ledgers.push(ledger);
    }
    let safe = ledgers.swap_remove(0);
    ensure!(safe == Ledger::default(), "not all is as it must be: {safe}");
    Ok(())
}

/// Publishes the events, with copies, and lets workers consume them, which are killed, and Redis too.
async fn once(run: &Run, load: &Load, messages: u64, nats: &Instance, rng: &mut Rng) -> Result<Ledger> {
    let mut server = Server::start(run.settings).await?;
    let broker = Nats::connect(nats.url(), NAME).await?;
    broker.create().await?;
    let payloads = (0..messages).map(|number| serde_json::to_vec(&Event { key: format!("event-{number}"), number }));
    let mut payloads = payloads.collect::<Result<Vec<_>, _>>()?;
    let copies = payloads.len() * usize::try_from(load.duplicates)? / 100;
    payloads.extend((0..copies).map(|_| payloads[rng.usize(..payloads.len())].clone()).collect::<Vec<_>>());
    rng.shuffle(&mut payloads);
    broker.publish(&payloads).await?;

    let dir = directory(&format!("redis {}", run.name.replace(',', "")));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let consumer = if run.consumer == Consumer::Idem { "idem" } else { "set-nx" };
    let args = ["redis", "--consumer", consumer];
    let env = [(REDIS, server.url()), (Nats::VARIABLE, nats.url())];
    let start = |number| Restarted::start(&dir.join(format!("worker-{number}.log")), &args, &env);
    let mut workers = (0..load.workers).map(start).collect::<Result<Vec<_>>>()?;

    // Spread over the run, in a random order.
    let began = Instant::now();
    let mut events = [vec![true; run.kills], vec![false; run.deaths]].concat();
    rng.shuffle(&mut events);
    let all = payloads.len() as u64;
    for (place, kills_worker) in events.iter().enumerate() {
        settled(&broker, all, all * (place as u64 + 1) / (events.len() as u64 + 1)).await?;
        // Anywhere in a message: each worker has several in hand.
        tokio::time::sleep(Duration::from_micros(rng.u64(..3000))).await;
        match kills_worker {
            true => {
                let chosen = rng.usize(..workers.len());
                workers[chosen].kill_and_start().await?;
            }
            false => server.die(run.death).await?,
        }
    }
    settled(&broker, all, all).await?;
    println!(
        "{messages} events, {copies} copies, {} deaths of workers and {} of Redis in {:?}",
        run.kills,
        run.deaths,
        began.elapsed()
    );
    for worker in workers {
        worker.dismiss().await?;
    }
    let ledger = judge(&server, messages).await?;
    broker.delete().await?;
    Ok(ledger)
}

/// Waits until so many of all deliveries are acked.
async fn settled(broker: &Nats, all: u64, count: u64) -> Result<()> {
    let (mut seen, mut moved) = (0, Instant::now());
    loop {
        let now = all.saturating_sub(broker.left().await?);
        if now >= count {
            return Ok(());
        }
        if now > seen {
            (seen, moved) = (now, Instant::now());
        }
        ensure!(moved.elapsed() < QUIET, "{now} of {all} messages are acked, and no further one is");
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// Compares the events with their effects.
async fn judge(server: &Server, messages: u64) -> Result<Ledger> {
    let mut client = server.client().await?;
    let effects: HashMap<u64, u64> = ::redis::cmd("HGETALL").arg(EFFECTS).query_async(&mut client).await?;
    let dead: usize = ::redis::cmd("SCARD").arg("idem:dead").query_async(&mut client).await?;
    let without = (0..messages).filter(|number| !effects.contains_key(number)).count();
    let doubled = effects.values().filter(|times| **times > 1).count();
    Ok(Ledger { lost: without.saturating_sub(dead), doubled, dead })
}

impl std::fmt::Display for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { lost, doubled, dead } = self;
        write!(f, "lost {lost}, doubled {doubled}, dead {dead}")
    }
}
