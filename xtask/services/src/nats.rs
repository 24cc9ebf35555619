//! NATS.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{Instance, place, process};

/// NATS with JetStream, with streams in files, listening on the loopback address only.
///
/// If `IDEM_NATS_SERVER` is set, it is the path of the `nats-server` to run, so that tests can run against a version
/// other than the installed one.
#[derive(Debug, Clone, Copy)]
pub struct Nats;

impl Nats {
    /// Starts a private instance. Fails if NATS is not installed, or does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

pub(crate) const SERVER: Server = Server {
    name: "nats",
    variable: "NATS_URL",
    url: |port| format!("nats://127.0.0.1:{port}"),
    packages: &["nats-server"],
    choice: "IDEM_NATS_SERVER",
    is_installed: || program().is_some(),
    // The default limit of a payload is 1 MiB. Written data is in the kernel and survives SIGKILL without fsync.
    create: |home, _| place::write(&home.join("nats.conf"), "max_payload: 8MB\n"),
    launch,
    pids: &["pid"],
    shutdown: Signal::SIGTERM,
};

fn launch(home: &Path, port: u16) -> Result<()> {
    let mut server = Command::new(program().context("NATS is not installed")?);
    server.args(["-c", "nats.conf", "-js", "-sd", "data", "-a", "127.0.0.1", "-p", &port.to_string()]);
    process::launch("NATS", &mut server, home, || process::answers(port, b"", b"INFO"))
}

/// Returns the selected program, else that in `PATH` or in Debian's directories, which an ordinary user's `PATH` lacks.
fn program() -> Option<PathBuf> {
    SERVER.chosen().or_else(|| process::which("nats-server", &["/usr/sbin", "/usr/bin"]))
}
