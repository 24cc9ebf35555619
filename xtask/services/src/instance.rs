//! A private instance for one test.

use std::path::Path;

use anyhow::{Result, bail};

use crate::compose::{self, Compose};
use crate::kinds;
use crate::local::Local;
use crate::server::Server;
use crate::watcher::{END_PROCESSES, Watcher};

/// A private server with its own data, which one test may stop, kill and pause.
///
/// The server ends and its data is removed when the value is dropped or the process ends, for any reason.
/// Calls block: in an async test use `spawn_blocking`, unless nothing else runs on that thread.
#[derive(Debug)]
pub struct Instance {
    // Declared first: the watcher is cancelled before the instance is removed.
    watcher: Option<Watcher>,
    backing: Backing,
    url: String,
}

#[derive(Debug)]
enum Backing {
    Local(Local),
    Compose(Compose),
}

impl Instance {
    pub(crate) fn start(server: &dyn Server) -> Result<Self> {
        let (backing, port) = if server.is_installed() {
            let local = Local::create(server)?;
            let port = local.port;
            (Backing::Local(local), port)
        } else if compose::is_available() {
            let project = format!("idem-{}-{}", server.name(), crate::place::free_port()?);
            let compose = Compose::create(server, project)?;
            let port = compose.port;
            (Backing::Compose(compose), port)
        } else {
            bail!(
                "{} is not installed and no Docker engine answers: run `cargo xtask services up`, or install {}",
                server.name(),
                server.packages().join(" ")
            );
        };
        let mut instance = Self { watcher: None, backing, url: server.url(port) };
        instance.watch()?;
        Ok(instance)
    }

    /// Returns its address, with user and password. It does not change when the server restarts.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Shuts it down cleanly, and waits until it has ended. The server closes its connections.
    ///
    /// # Errors
    /// It does not end within a minute.
    pub fn stop(&mut self) -> Result<()> {
        match &self.backing {
            Backing::Local(local) => local.stop(),
            Backing::Compose(compose) => compose.run(&["stop"]),
        }
    }

    /// Starts it again after [`stop`](Self::stop) or [`kill`](Self::kill), with the same data, and waits until it
    /// responds.
    ///
    /// # Errors
    /// It does not respond in time; the text contains its log.
    pub fn start_again(&mut self) -> Result<()> {
        match &self.backing {
            Backing::Local(local) => local.start()?,
            Backing::Compose(compose) => compose.run(&["up", "--detach", "--wait"])?,
        }
        self.watch()
    }

    /// Kills all its processes at once (SIGKILL).
    ///
    /// # Errors
    /// They still exist after half a minute.
    pub fn kill(&mut self) -> Result<()> {
        match &self.backing {
            Backing::Local(local) => local.kill(),
            Backing::Compose(compose) => compose.run(&["kill"]),
        }
    }

    /// Freezes it (SIGSTOP): connections stay open, and nothing answers.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn pause(&mut self) -> Result<()> {
        match &self.backing {
            Backing::Local(local) => local.pause(),
            Backing::Compose(compose) => compose.run(&["pause"]),
        }
    }

    /// Resumes a frozen server.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn resume(&mut self) -> Result<()> {
        match &self.backing {
            Backing::Local(local) => local.resume(),
            Backing::Compose(compose) => compose.run(&["unpause"]),
        }
    }

    /// Returns the main process, while it runs on this machine outside a container.
    pub fn pid(&self) -> Option<i32> {
        match &self.backing {
            Backing::Local(local) => local.main(),
            Backing::Compose(_) => None,
        }
    }

    /// Returns its directory, unless it runs in a container.
    pub fn home(&self) -> Option<&Path> {
        match &self.backing {
            Backing::Local(local) => Some(&local.home),
            Backing::Compose(_) => None,
        }
    }

    fn watch(&mut self) -> Result<()> {
        self.watcher = None;
        self.watcher = Some(match &self.backing {
            Backing::Local(local) => {
                let home = local.home.display().to_string();
                let processes = local.processes().into_iter().map(|pid| pid.to_string());
                Watcher::start(END_PROCESSES, std::iter::once(home).chain(processes))?
            }
            Backing::Compose(compose) => Watcher::start(
                "docker compose --project-name \"$1\" down --volumes --timeout 5",
                [compose.project.clone()],
            )?,
        });
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.watcher = None;
        // An error cannot be reported here; remaining files are under `target/services`.
        let _ = match &self.backing {
            Backing::Local(local) => local.remove(),
            Backing::Compose(compose) => compose.remove(),
        };
    }
}

/// Ensures that [`Instance::start`] can work for every kind of server: installs missing packages if possible.
pub(crate) fn prepare() -> Result<()> {
    let all = kinds::ALL.iter().copied();
    crate::apt::install(&all.filter(|server| !server.is_installed() && !compose::is_available()).collect::<Vec<_>>())
}
