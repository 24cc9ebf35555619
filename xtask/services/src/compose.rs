//! An instance in a container, defined by `compose.yaml`.

use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use anyhow::Result;
use serde::{Deserialize, Serialize};

use crate::server::Server;
use crate::{place, process};

/// An instance in a container: one service of `compose.yaml`, in a separate project.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Compose {
    pub(crate) project: String,
    pub(crate) service: String,
    pub(crate) port: u16,
}

impl Compose {
    /// Starts the service and waits until it is healthy.
    pub(crate) fn create(server: &dyn Server, project: String) -> Result<Self> {
        let compose = Self { project, service: server.name().to_owned(), port: place::free_port()? };
        if let Err(error) = compose.run(&["up", "--detach", "--wait"]) {
            let _ = compose.remove();
            return Err(error);
        }
        Ok(compose)
    }

    /// Runs `docker compose <args> <service>`.
    pub(crate) fn run(&self, args: &[&str]) -> Result<()> {
        process::run(self.command().args(args).arg(&self.service)).map(drop)
    }

    /// Stops it and removes its data.
    pub(crate) fn remove(&self) -> Result<()> {
        process::run(self.command().args(["down", "--volumes", "--timeout", "5"])).map(drop)
    }

    /// Returns whether its container runs.
    pub(crate) fn is_up(&self) -> bool {
        let output = process::run(self.command().args(["ps", "--status", "running", "--quiet", &self.service]));
        output.is_ok_and(|output| !output.stdout.is_empty())
    }

    fn command(&self) -> Command {
        let mut command = Command::new("docker");
        command.args(["compose", "--project-name", &self.project, "--file"]).arg(place::root().join("compose.yaml"));
        command.env(format!("{}_PORT", self.service.to_uppercase()), self.port.to_string());
        command
    }
}

/// If this variable is set, Docker is not used, so that the servers are those that are installed.
pub const WITHOUT_DOCKER: &str = "IDEM_WITHOUT_DOCKER";

/// Returns whether a Docker engine responds and supports `compose`. A client without an engine does not count.
pub(crate) fn is_available() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        std::env::var_os(WITHOUT_DOCKER).is_none() && answers(&["info"]) && answers(&["compose", "version"])
    })
}

fn answers(args: &[&str]) -> bool {
    let mut docker = Command::new("docker");
    let docker = docker.args(args).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let Ok(mut child) = docker.spawn() else { return false };
    let start = Instant::now();
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if start.elapsed() < Duration::from_secs(10) => std::thread::sleep(Duration::from_millis(20)),
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}
