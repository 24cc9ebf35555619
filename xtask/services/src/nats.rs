//! NATS.

use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{Instance, daemon, place, process};

/// NATS with JetStream, its streams in files, listening on the loopback address only.
///
/// Where `IDEM_NATS_SERVER` is set, it is the path of the `nats-server` to run, so that tests can be run against a
/// version that is not the installed one.
#[derive(Debug, Clone, Copy)]
pub struct Nats;

impl Nats {
    /// Starts an instance of one's own, which a test may stop, kill and pause. It ends with the value, or with the
    /// process.
    ///
    /// # Errors
    /// There is no way to start one on this machine, or it does not answer within two minutes.
    pub fn start() -> Result<Instance> {
        Instance::start(&Self)
    }
}

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
        // By default a payload ends at 1 MiB. Kept by the kernel, what was written survives SIGKILL without fsync.
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

/// Whether the first bytes that a server sends to a new client are those of `INFO`.
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

/// The one that was chosen, else that in `PATH`, which lacks the directory of Debian's for an ordinary user.
fn program() -> Option<PathBuf> {
    Nats.chosen().or_else(|| process::which("nats-server", &["/usr/sbin", "/usr/bin"]))
}
