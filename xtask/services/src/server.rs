//! What a kind of server is to this crate. A new kind is one file that implements it, and one line in [`ALL`].

use std::path::{Path, PathBuf};

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::{Kafka, Nats, Postgres, RabbitMq};

/// Every kind of server, in the order in which they are started.
pub(crate) const ALL: &[&dyn Server] = &[&Postgres, &RabbitMq, &Nats, &Kafka];

/// A kind of server.
pub(crate) trait Server: Sync {
    /// Its name, which is also that of its service in `compose.yaml`.
    fn name(&self) -> &'static str;

    /// The variable in the environment that holds its address, as tests read it.
    fn variable(&self) -> &'static str;

    /// The address of an instance on this port of this machine.
    fn url(&self, port: u16) -> String;

    /// The packages of Debian and Ubuntu that hold its programs.
    fn packages(&self) -> &'static [&'static str];

    /// Whether its programs are installed.
    fn is_installed(&self) -> bool;

    /// The program that the environment asks for. It goes before Docker, and before an instance of another program.
    fn chosen(&self) -> Option<PathBuf> {
        None
    }

    /// The system of which its programs are, where that is not this one. The data of its instances lies there.
    fn root(&self) -> Option<PathBuf> {
        None
    }

    /// Makes the data of a new instance in `home`, an empty directory.
    fn create(&self, home: &Path, port: u16) -> Result<()>;

    /// Starts the instance in `home`, and waits until it answers.
    fn launch(&self, home: &Path, port: u16) -> Result<()>;

    /// The processes that run in `home` as far as its files tell, the main one first: also of a start that failed.
    fn processes(&self, home: &Path) -> Vec<i32>;

    /// The signal upon which it shuts down in good order without waiting for its clients.
    fn shutdown(&self) -> Signal;
}

/// The kind of this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Server> {
    let found = ALL.iter().copied().find(|server| server.name() == name);
    found.ok_or_else(|| anyhow::anyhow!("there is no server named {name}"))
}
