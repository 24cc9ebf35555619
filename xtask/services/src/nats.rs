//! NATS.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{daemon, place, process};

/// NATS with JetStream, with streams in files, listening on the loopback address only.
///
/// If `IDEM_NATS_SERVER` is set, it is the path of the `nats-server` to run, so that tests can run against a version
/// other than the installed one.
#[derive(Debug, Clone, Copy)]
pub struct Nats;

impl Server for Nats {
    fn name(&self) -> &'static str {
        "nats"
    }

    fn variable(&self) -> &'static str {
        "NATS_URL"
    }

    fn url(&self, port: u16) -> String {
        format!("nats://127.0.0.1:{port}")
    }

    fn packages(&self) -> &'static [&'static str] {
        &["nats-server"]
    }

    fn is_installed(&self) -> bool {
        program().is_some()
    }

    fn chosen(&self) -> Option<PathBuf> {
        std::env::var_os("IDEM_NATS_SERVER").filter(|path| !path.is_empty()).map(PathBuf::from)
    }

    fn create(&self, home: &Path, _port: u16) -> Result<()> {
        // The default limit of a payload is 1 MiB. Written data is in the kernel and survives SIGKILL without fsync.
        place::write(&home.join("nats.conf"), "max_payload: 8MB\n")
    }

    fn launch(&self, home: &Path, port: u16) -> Result<()> {
        let mut server = Command::new(program().context("NATS is not installed")?);
        server.args(["-c", "nats.conf", "-js", "-sd", "data", "-a", "127.0.0.1", "-p", &port.to_string()]);
        daemon::launch("NATS", &mut server, home, || greets(port))
    }

    fn processes(&self, home: &Path) -> Vec<i32> {
        daemon::recorded(home, &["pid"])
    }

    fn shutdown(&self) -> Signal {
        Signal::SIGTERM
    }
}

/// Returns whether the first bytes that a server sends to a new client are those of `INFO`.
fn greets(port: u16) -> bool {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let limit = Duration::from_secs(1);
    let mut first = [0; 4];
    let greeting = TcpStream::connect_timeout(&address, limit).and_then(|mut stream| {
        stream.set_read_timeout(Some(limit))?;
        stream.read_exact(&mut first)
    });
    greeting.is_ok() && &first == b"INFO"
}

/// Returns the selected program, else that in `PATH` or in Debian's directories, which an ordinary user's `PATH` lacks.
fn program() -> Option<PathBuf> {
    Nats.chosen().or_else(|| process::which("nats-server", &["/usr/sbin", "/usr/bin"]))
}
