//! Redis.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{Instance, place, process};

/// Redis with an append-only file that is synced by each command, listening on the loopback address only.
///
/// If `IDEM_REDIS_SERVER` is set, it is the path of the `redis-server` or `valkey-server` to run.
#[derive(Debug, Clone, Copy)]
pub struct Redis;

impl Redis {
    /// Starts a private instance. Fails if Redis is not installed, or does not respond within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

const CONFIGURATION: &str = "bind 127.0.0.1\nsave \"\"\nappendonly yes\nappendfsync always\n";

pub(crate) const SERVER: Server = Server {
    name: "redis",
    variable: "REDIS_URL",
    url: |port| format!("redis://127.0.0.1:{port}"),
    packages: &["redis-server"],
    choice: "IDEM_REDIS_SERVER",
    is_installed: || program().is_some(),
    create: |home, _| place::write(&home.join("redis.conf"), CONFIGURATION),
    launch,
    pids: &["pid"],
    shutdown: Signal::SIGTERM,
};

fn launch(home: &Path, port: u16) -> Result<()> {
    let mut server = Command::new(program().context("Redis is not installed")?);
    server.args(["redis.conf", "--port", &port.to_string()]);
    process::launch("Redis", &mut server, home, || process::answers(port, b"PING\r\n", b"+PONG"))
}

/// Returns the selected program, else that in `PATH` or in Debian's directory.
fn program() -> Option<PathBuf> {
    SERVER.chosen().or_else(|| process::which("redis-server", &["/usr/bin"]))
}
