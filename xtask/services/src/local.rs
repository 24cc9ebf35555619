//! An instance started from the programs that are installed on this machine.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::server::{self, Server};
use crate::{place, process};

/// An instance started from the programs that are installed on this machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Local {
    server: String,
    pub(crate) home: PathBuf,
    pub(crate) port: u16,
    /// The program that was asked for when it was made.
    pub(crate) chosen: Option<PathBuf>,
}

impl Local {
    /// Makes an instance with data of its own, and starts it. Nothing of it is left behind if that fails.
    pub(crate) fn create(server: &dyn Server) -> Result<Self> {
        let home = place::new_home(server.name(), server.root().as_deref())?;
        let (name, chosen) = (server.name().to_owned(), server.chosen());
        let local = Self { server: name, home, port: place::free_port()?, chosen };
        let started = server.create(&local.home, local.port).and_then(|()| local.start());
        if let Err(error) = started {
            let _ = local.remove();
            return Err(error.context(format!("cannot start {}", server.name())));
        }
        Ok(local)
    }

    /// Starts it again, on its port and with its data.
    pub(crate) fn start(&self) -> Result<()> {
        server::named(&self.server)?.launch(&self.home, self.port)
    }

    /// Shuts it down in good order; open connections are closed by the server.
    pub(crate) fn stop(&self) -> Result<()> {
        let shutdown = server::named(&self.server)?.shutdown();
        for (number, pid) in self.processes().into_iter().enumerate() {
            process::signal(pid, if number == 0 { shutdown } else { Signal::SIGTERM })?;
            process::wait_until("the shutdown", Duration::from_secs(60), || Ok(!process::is_alive(pid)))?;
        }
        Ok(())
    }

    /// Ends all its processes at once, as a power failure does.
    pub(crate) fn kill(&self) -> Result<()> {
        let all = self.tree();
        all.iter().try_for_each(|pid| process::signal(*pid, Signal::SIGKILL))?;
        let ended = || Ok(!all.iter().any(|pid| process::is_alive(*pid)));
        process::wait_until("the end of killed processes", Duration::from_secs(30), ended)
    }

    /// Freezes all its processes: connections stay open, and nothing answers.
    pub(crate) fn pause(&self) -> Result<()> {
        let mut paused = Vec::new();
        // A process may be born while its siblings are being frozen; a frozen one bears none.
        loop {
            let new: Vec<i32> = self.tree().into_iter().filter(|pid| !paused.contains(pid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            new.iter().try_for_each(|pid| process::signal(*pid, Signal::SIGSTOP))?;
            paused.extend(new);
        }
    }

    /// Lets frozen processes go on.
    pub(crate) fn resume(&self) -> Result<()> {
        self.tree().into_iter().try_for_each(|pid| process::signal(pid, Signal::SIGCONT))
    }

    /// Ends it and removes its data.
    pub(crate) fn remove(&self) -> Result<()> {
        self.kill()?;
        match fs::remove_dir_all(&self.home) {
            Err(error) if self.home.exists() => {
                Err(error).with_context(|| format!("cannot remove {}", self.home.display()))
            }
            _ => Ok(()),
        }
    }

    /// Whether it runs and listens.
    pub(crate) fn is_up(&self) -> bool {
        self.main().is_some() && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    /// Its main process, while it runs.
    pub(crate) fn main(&self) -> Option<i32> {
        self.processes().first().copied()
    }

    /// Its processes that run. A number that has gone to a stranger since is told apart by the working directory.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let recorded = server::named(&self.server).map(|server| server.processes(&self.home)).unwrap_or_default();
        let ours = |pid: &i32| process::is_alive(*pid) && process::directory(*pid).starts_with(&self.home);
        recorded.into_iter().filter(ours).collect()
    }

    fn tree(&self) -> Vec<i32> {
        self.processes().into_iter().flat_map(process::tree).collect()
    }
}
