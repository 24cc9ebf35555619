//! The instances that all tests share: finds, starts, records and stops them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};

use crate::instance::Local;
use crate::server::Server;
use crate::{apt, place};

/// The location of a server.
#[derive(Debug, Clone)]
pub struct Status {
    /// Its name.
    pub server: &'static str,
    /// The environment variable from which tests read its address.
    pub variable: &'static str,
    /// Its address; `None` if it does not run.
    pub url: Option<String>,
    /// Its origin, as text for display.
    pub from: String,
}

/// Finds or starts every server, in this order: an address in the environment; a running instance; installed programs;
/// programs that are installed now. Writes the addresses to `target/services/env`.
///
/// # Errors
/// A server can neither be found nor started. Running servers are left running.
pub fn up() -> Result<Vec<Status>> {
    let _lock = lock()?;
    apt::install(Server::ALL.into_iter().filter(|server| status_of(server).url.is_none()))?;
    let started = std::thread::scope(|scope| {
        let threads = Server::ALL.map(|server| scope.spawn(move || ensure(server)));
        threads.map(|thread| thread.join().map_err(|_| anyhow!("a panic"))?)
    });
    let all = started.into_iter().collect::<Result<Vec<_>>>()?;
    fs::write(place::record().join("env"), exports(&all)).context("cannot write target/services/env")?;
    Ok(all)
}

/// Stops the servers that [`up`] started, and removes their data. A server whose address came from the environment is
/// not touched.
///
/// # Errors
/// A process cannot be ended, or data cannot be removed.
pub fn down() -> Result<()> {
    let _lock = lock()?;
    for server in Server::ALL {
        if let Some(local) = recorded(server) {
            local.remove()?;
            fs::remove_file(record(server))?;
        }
    }
    let _ = fs::remove_file(place::record().join("env"));
    Ok(())
}

/// Returns the current location of each server.
pub fn status() -> Vec<Status> {
    Server::ALL.map(status_of).into()
}

/// Ensures that tests can start private instances ([`Postgres::start`](crate::Postgres::start)), a browser, and pgbouncer: where
/// that cannot be installed, its suite reports that it was skipped.
///
/// # Errors
/// A server is not installed, and cannot be installed here.
pub fn prepare() -> Result<()> {
    let _lock = lock()?;
    apt::install(Server::ALL.into_iter())?;
    apt::chromium()?;
    apt::program("pgbouncer")
}

/// Returns the lines for a shell to evaluate.
pub fn exports(all: &[Status]) -> String {
    let line = |status: &Status| Some(format!("export {}='{}'\n", status.variable, status.url.as_ref()?));
    all.iter().filter_map(line).collect()
}

/// Returns the server if it runs, else a new instance.
fn ensure(server: &'static Server) -> Result<Status> {
    let found = status_of(server);
    if found.url.is_some() {
        return Ok(found);
    }
    // The recorded instance does not respond: it was killed, or the machine was rebooted.
    if let Some(local) = recorded(server) {
        local.remove()?;
    }
    let started = Local::create(server, |_| Ok(()))?;
    fs::write(record(server), serde_json::to_vec(&started)?).context("cannot write under target/services")?;
    let found = status_of(server);
    found.url.is_some().then_some(found).with_context(|| format!("{} ended just after its start", server.name))
}

/// Returns where the server is: where the environment says, or one of our instances.
fn status_of(server: &Server) -> Status {
    let given = std::env::var(server.variable).ok().filter(|url| !url.is_empty());
    let running = || recorded(server).filter(|local| local.chosen == server.chosen() && local.is_up());
    let (url, from) = if given.is_some() {
        (given, "from the environment".to_owned())
    } else if let Some(local) = running() {
        let pids = local.processes().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (Some((server.url)(local.port)), format!("process {pids}, data in {}", local.home.display()))
    } else {
        (None, "does not run".to_owned())
    };
    Status { server: server.name, variable: server.variable, url, from }
}

fn record(server: &Server) -> PathBuf {
    place::record().join(format!("{}.json", server.name))
}

fn recorded(server: &Server) -> Option<Local> {
    serde_json::from_slice(&fs::read(record(server)).ok()?).ok()
}

/// Locks out other processes that start or stop shared servers.
fn lock() -> Result<fs::File> {
    let dir = place::record();
    fs::create_dir_all(&dir).with_context(|| format!("cannot create {}", dir.display()))?;
    let file = fs::File::create(dir.join("lock"))?;
    file.lock()?;
    Ok(file)
}
