//! Requests that clients repeat while services are killed: `cargo xtask demo requests`.
//!
//! | file | contents |
//! |---|---|
//! | this one | the run: services that are killed, clients that repeat, and the verdict |
//! | `service` | the process that is killed: a route in the layer, and those of middlewares that commit twice |
//! | `sessions` | where one of them keeps its replies |
//! | `client` | a client, which repeats each request until it has a reply, and then once more |

mod client;
pub(crate) mod service;
mod sessions;

use std::fs::File;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use fastrand::Rng;
use idem_services::Instance;
use tokio::process::{Child, Command};
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::timeout;

use self::client::{Client, Replies};
use crate::harness::directory;
use crate::processes::DATABASE;
use crate::tables::{Tables, unsigned};

/// How often a service is killed by default.
const KILLS: usize = 20;
/// How many clients send requests at once.
const CLIENTS: u64 = 16;
/// How many services run.
const SERVICES: usize = 2;
/// For how long nothing may happen.
const QUIET: Duration = Duration::from_secs(60);

/// What went wrong in a run.
#[derive(Debug, Default, PartialEq, Eq)]
struct Ledger {
    /// Requests that have a reply, and no effect.
    lost: usize,
    /// Requests with several effects.
    doubled: usize,
    /// Requests whose repeats have got another reply.
    differing: usize,
}

/// Sends requests to services with the layer, and fewer to middlewares that commit the reply after the effect; and kills them
/// meanwhile. Fails if a request to the layer was lost or doubled, or has two replies.
pub(crate) async fn run(requests: u64, kills: Option<usize>, seed: u64) -> Result<()> {
    println!("seed {seed}");
    let mut rng = Rng::with_seed(seed);
    let kills = kills.unwrap_or(KILLS);
    let database = spawn_blocking(idem_services::Postgres::start).await??;
    let layer = once("/payments", requests, kills, &database, &mut rng).await?;
    let few = (requests / 4).max(200);
    let mut found = vec![("the layer", layer)];
    for path in ["/two-commits", "/axum-idempotent"] {
        found.push((&path[1..], once(path, few, kills, &database, &mut rng).await?));
    }
    for (name, Ledger { lost, doubled, differing }) in &found {
        println!("{name:16} lost {lost}, doubled {doubled}, replies that differ {differing}");
    }
    let (_, layer) = found.swap_remove(0);
    ensure!(layer == Ledger::default(), "not all is as it must be: {layer:?}");
    Ok(())
}

/// Sends so many requests to this path, and kills services meanwhile.
async fn once(path: &'static str, requests: u64, kills: usize, database: &Instance, rng: &mut Rng) -> Result<Ledger> {
    let tables = Tables::new(database.url()).await?;
    // No unique constraint: what is doubled must be visible.
    tables
        .rows("CREATE TABLE demo.payments (id bigint GENERATED ALWAYS AS IDENTITY, request bigint NOT NULL)", &[])
        .await?;
    tables.rows("CREATE TABLE demo.replies (key text PRIMARY KEY, reply text NOT NULL)", &[]).await?;
    let dir = directory(&format!("requests {}", path.trim_start_matches('/')));
    std::fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let ports = (0..SERVICES).map(|_| free_port()).collect::<Result<Vec<_>>>()?;
    let services = ports.iter().map(|port| Service::start(*port, database.url(), &dir));
    let mut services = services.collect::<Result<Vec<_>>>()?;

    let start = Instant::now();
    let (next, done) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let client = Client { path, ports: ports.clone(), next: next.clone(), done: done.clone(), requests };
        clients.spawn(client.run());
    }
    for kill in 1..=kills as u64 {
        reach(&done, kill * requests / (kills as u64 + 1)).await?;
        // Anywhere in a request: 16 of them are under way.
        tokio::time::sleep(Duration::from_micros(rng.u64(..3000))).await;
        services[rng.usize(..SERVICES)].kill_and_start(database.url()).await?;
    }
    let mut replies = Replies::new();
    while let Some(ended) = clients.join_next().await {
        replies.extend(ended??);
    }
    println!("{path}: {requests} requests and {kills} kills in {:?}", start.elapsed());
    for service in services {
        service.dismiss().await?;
    }
    judge(&tables, &replies).await
}

/// Waits until so many requests have their replies.
async fn reach(done: &AtomicU64, count: u64) -> Result<()> {
    let (mut seen, mut moved) = (0, Instant::now());
    loop {
        let now = done.load(SeqCst);
        if now >= count {
            return Ok(());
        }
        if now > seen {
            (seen, moved) = (now, Instant::now());
        }
        ensure!(moved.elapsed() < QUIET, "only {now} requests have a reply, and no further one gets any");
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
}

/// Compares the replies with the effects.
async fn judge(tables: &Tables, replies: &Replies) -> Result<Ledger> {
    let effects = tables.rows("SELECT request, count(*) FROM demo.payments GROUP BY request", &[]).await?;
    let paid = effects.iter().map(|row| unsigned(row, 0)).collect::<std::collections::HashSet<_>>();
    Ok(Ledger {
        lost: replies.keys().filter(|request| !paid.contains(request)).count(),
        doubled: effects.iter().filter(|row| unsigned(row, 1) > 1).count(),
        differing: replies.values().filter(|[first, second]| first != second).count(),
    })
}

/// A port that was free a moment ago.
fn free_port() -> Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A service process.
struct Service {
    port: u16,
    log: PathBuf,
    child: Child,
}

impl Service {
    fn start(port: u16, database: &str, dir: &Path) -> Result<Self> {
        let log = dir.join(format!("service-{port}.log"));
        Ok(Self { port, child: spawn(port, database, File::create(&log)?)?, log })
    }

    /// Kills it, and starts it again at once.
    async fn kill_and_start(&mut self, database: &str) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("a service has ended by itself ({status}): see {}", self.log.display());
        }
        self.child.kill().await?;
        self.child = spawn(self.port, database, File::options().append(true).open(&self.log)?)?;
        Ok(())
    }

    /// Lets it finish its requests and end.
    async fn dismiss(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = timeout(QUIET, self.child.wait()).await.context("a service does not end")??;
        ensure!(status.success(), "a service has failed ({status}): see {}", self.log.display());
        Ok(())
    }
}

fn spawn(port: u16, database: &str, log: File) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["requests", "--port", &port.to_string()]).env(DATABASE, database).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    command.spawn().context("cannot start a service")
}
