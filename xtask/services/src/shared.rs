//! The instances that all tests share: finds, starts, records and stops them.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result, anyhow};
use serde::{Deserialize, Serialize};

use crate::compose::{self, Compose};
use crate::kinds;
use crate::local::Local;
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

/// An instance that was started here, as stored in the record.
#[derive(Debug, Serialize, Deserialize)]
enum Started {
    Local(Local),
    Compose(Compose),
}

/// Finds or starts every server, in this order: an address in the environment; a running instance; a Docker engine
/// (unless the environment names the program, as `IDEM_NATS_SERVER` does, or sets `IDEM_WITHOUT_DOCKER`); installed
/// programs; programs that are installed now. Writes the addresses to `target/services/env`.
///
/// # Errors
/// A server can neither be found nor started. Running servers are left running.
pub fn up() -> Result<Vec<Status>> {
    let _lock = lock()?;
    let missing = kinds::ALL.iter().copied().filter(|server| standing(*server).is_none());
    apt::install(&missing.filter(|server| !server.is_installed() && !compose::is_available()).collect::<Vec<_>>())?;
    let started = std::thread::scope(|scope| {
        let start = |server: &'static &dyn Server| scope.spawn(move || ensure(*server));
        let threads: Vec<_> = kinds::ALL.iter().map(start).collect();
        let join = |thread: std::thread::ScopedJoinHandle<'_, _>| thread.join().map_err(|_| anyhow!("a panic"))?;
        threads.into_iter().map(join).collect::<Vec<Result<Status>>>()
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
    for server in kinds::ALL {
        match recorded(*server) {
            Some(Started::Local(local)) => local.remove()?,
            Some(Started::Compose(compose)) => compose.remove()?,
            None => continue,
        }
        fs::remove_file(record(*server))?;
    }
    let _ = fs::remove_file(place::record().join("env"));
    Ok(())
}

/// Returns the current location of each server.
pub fn status() -> Vec<Status> {
    let none = |server: &dyn Server| Status {
        server: server.name(),
        variable: server.variable(),
        url: None,
        from: "does not run".to_owned(),
    };
    kinds::ALL.iter().map(|server| standing(*server).unwrap_or_else(|| none(*server))).collect()
}

/// Ensures that tests can start private instances ([`Postgres::start`](crate::Postgres::start)).
///
/// # Errors
/// A server is not installed, not available in Docker, and cannot be installed here.
pub fn prepare() -> Result<()> {
    let _lock = lock()?;
    crate::instance::prepare()
}

/// Returns the lines for a shell to evaluate.
pub fn exports(all: &[Status]) -> String {
    let line = |status: &Status| Some(format!("export {}='{}'\n", status.variable, status.url.as_ref()?));
    all.iter().filter_map(line).collect()
}

/// Returns the server if it runs, else a new instance.
fn ensure(server: &'static dyn Server) -> Result<Status> {
    if let Some(status) = standing(server) {
        return Ok(status);
    }
    // The recorded instance does not respond: it was killed, or the machine was rebooted.
    match recorded(server) {
        Some(Started::Local(local)) => local.remove()?,
        Some(Started::Compose(compose)) => compose.remove()?,
        None => {}
    }
    let started = if server.chosen().is_none() && compose::is_available() {
        Started::Compose(Compose::create(server, format!("idem-{}", server.name()))?)
    } else {
        Started::Local(Local::create(server)?)
    };
    fs::write(record(server), serde_json::to_vec(&started)?).context("cannot write under target/services")?;
    standing(server).ok_or_else(|| anyhow!("{} ended just after its start", server.name()))
}

/// Returns the server, if the environment names it or one of our instances runs.
fn standing(server: &dyn Server) -> Option<Status> {
    let (url, from) = match std::env::var(server.variable()) {
        Ok(url) if !url.is_empty() => (url, "from the environment".to_owned()),
        _ => match recorded(server)? {
            Started::Local(local) if local.chosen == server.chosen() && local.is_up() => {
                let pids = local.processes().iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
                (server.url(local.port), format!("process {pids}, data in {}", local.home.display()))
            }
            Started::Compose(compose) if server.chosen().is_none() && compose::is_available() && compose.is_up() => {
                (server.url(compose.port), format!("docker compose project {}", compose.project))
            }
            _ => return None,
        },
    };
    Some(Status { server: server.name(), variable: server.variable(), url: Some(url), from })
}

fn record(server: &dyn Server) -> PathBuf {
    place::record().join(format!("{}.json", server.name()))
}

fn recorded(server: &dyn Server) -> Option<Started> {
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
