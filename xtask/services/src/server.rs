//! What differs between the kinds of servers. A new kind is one file with a [`Server`], and its line in [`Server::ALL`].

use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::{kafka, moto, nats, postgres, process, rabbitmq, redis, sqs};

/// A kind of server.
pub(crate) struct Server {
    /// Its name.
    pub(crate) name: &'static str,
    /// The environment variable from which tests read its address.
    pub(crate) variable: &'static str,
    /// The address of an instance on this port of this machine.
    pub(crate) url: fn(u16) -> String,
    /// The packages of Debian and Ubuntu that contain its programs.
    pub(crate) packages: &'static [&'static str],
    /// The environment variable that selects its program, if there is one, or the root of the system that contains it.
    pub(crate) choice: &'static str,
    /// Returns whether its programs are installed.
    pub(crate) is_installed: fn() -> bool,
    /// Creates the data of a new instance, which will have this port, in an empty directory.
    pub(crate) create: fn(&Path, u16) -> Result<()>,
    /// Starts the instance in this directory, and waits until it responds.
    pub(crate) launch: fn(&Path, u16) -> Result<()>,
    /// The files in its directory that name its processes, the main one first. They include those of a failed start.
    pub(crate) pids: &'static [&'static str],
    /// The signal for a clean shutdown that does not wait for clients.
    pub(crate) shutdown: Signal,
}

impl Server {
    /// Every kind of server, in the order in which they are started.
    pub(crate) const ALL: [&'static Self; 7] = [
        &postgres::SERVER,
        &rabbitmq::SERVER,
        &nats::SERVER,
        &kafka::SERVER,
        &sqs::SERVER,
        &redis::SERVER,
        &moto::SERVER,
    ];

    /// Returns the kind with this name.
    pub(crate) fn named(name: &str) -> Result<&'static Self> {
        let found = Self::ALL.into_iter().find(|server| server.name == name);
        found.ok_or_else(|| anyhow::anyhow!("there is no server named {name}"))
    }

    /// Returns the program that the environment selects. It takes precedence over an instance of another program.
    pub(crate) fn chosen(&self) -> Option<PathBuf> {
        process::variable(self.choice)
    }
}
