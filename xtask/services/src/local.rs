//! An instance started from the programs installed on this machine.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::kinds;
use crate::server::Server;
use crate::{place, process};

/// An instance started from the programs installed on this machine.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Local {
    server: String,
    pub(crate) home: PathBuf,
    pub(crate) port: u16,
    /// The program that the environment selected when the instance was created.
    pub(crate) chosen: Option<PathBuf>,
}

impl Local {
    /// Creates an instance with a new data directory and starts it. If this fails, nothing is left behind.
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

    /// Restarts it on the same port with the same data.
    pub(crate) fn start(&self) -> Result<()> {
        kinds::named(&self.server)?.launch(&self.home, self.port)
    }

    /// Shuts it down cleanly; the server closes open connections.
    pub(crate) fn stop(&self) -> Result<()> {
        let shutdown = kinds::named(&self.server)?.shutdown();
        for (number, pid) in self.processes().into_iter().enumerate() {
            process::signal(pid, if number == 0 { shutdown } else { Signal::SIGTERM })?;
            process::wait_until("the shutdown", Duration::from_secs(60), || Ok(!process::is_alive(pid)))?;
        }
        Ok(())
    }

    /// Kills all its processes at once, as a power failure does.
    pub(crate) fn kill(&self) -> Result<()> {
        let all = self.tree();
        all.iter().try_for_each(|pid| process::signal(*pid, Signal::SIGKILL))?;
        let ended = || Ok(!all.iter().any(|pid| process::is_alive(*pid)));
        process::wait_until("the end of killed processes", Duration::from_secs(30), ended)
    }

    /// Freezes all its processes: connections stay open, and nothing answers.
    pub(crate) fn pause(&self) -> Result<()> {
        let mut paused = Vec::new();
        // A process may fork while its siblings are being frozen; a frozen process cannot fork.
        loop {
            let new: Vec<i32> = self.tree().into_iter().filter(|pid| !paused.contains(pid)).collect();
            if new.is_empty() {
                return Ok(());
            }
            new.iter().try_for_each(|pid| process::signal(*pid, Signal::SIGSTOP))?;
            paused.extend(new);
        }
    }

    /// Resumes frozen processes.
    pub(crate) fn resume(&self) -> Result<()> {
        self.tree().into_iter().try_for_each(|pid| process::signal(pid, Signal::SIGCONT))
    }

    /// Kills it and removes its data.
    pub(crate) fn remove(&self) -> Result<()> {
        self.kill()?;
        match fs::remove_dir_all(&self.home) {
            Err(error) if self.home.exists() => {
                Err(error).with_context(|| format!("cannot remove {}", self.home.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether it runs and listens.
    pub(crate) fn is_up(&self) -> bool {
        self.main().is_some() && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    /// Returns its main process while it runs.
    pub(crate) fn main(&self) -> Option<i32> {
        self.processes().first().copied()
    }

    /// Returns its running processes. The working directory reveals a process id that the kernel has since reused.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let recorded = kinds::named(&self.server).map(|server| server.processes(&self.home)).unwrap_or_default();
        let ours = |pid: &i32| process::is_alive(*pid) && process::directory(*pid).starts_with(&self.home);
        recorded.into_iter().filter(ours).collect()
    }

    fn tree(&self) -> Vec<i32> {
        self.processes().into_iter().flat_map(process::tree).collect()
    }
}
