//! moto, a server that speaks the protocols of DynamoDB and EventBridge, and of SQS, to which its rules send. From PyPI.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{Instance, place, process};

/// moto, in memory, listening on the loopback address only, with one request at a time, but for those of SQS. It accepts any credentials, and receipt
/// handles that have expired, throttles nothing, and never deletes an item because of its time to live, so it proves nothing about
/// these.
///
/// It is installed from PyPI into a virtual environment.
#[derive(Debug, Clone, Copy)]
pub struct Moto;

impl Moto {
    /// The version installed from PyPI.
    pub const VERSION: &str = "5.2.5";

    /// Starts a private instance. Fails if moto cannot be installed, or does not respond within two minutes. Nothing survives
    /// its end.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

pub(crate) const SERVER: Server = Server {
    name: "moto",
    variable: "MOTO_URL",
    url: |port| format!("http://127.0.0.1:{port}"),
    // It runs and installs moto.
    packages: &["python3-venv"],
    // No other program can be chosen, only another server by its address.
    choice: "",
    is_installed: || installed().is_some() || can_be_installed(),
    create: |_, _| Ok(()),
    launch,
    pids: &["pid"],
    shutdown: Signal::SIGTERM,
};

fn launch(home: &Path, port: u16) -> Result<()> {
    let program = installed().map_or_else(install, Ok)?;
    let mut server = Command::new(program);
    server.args(["-c", include_str!("moto.py"), &port.to_string()]);
    process::launch("moto", &mut server, home, || TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok())
}

/// Returns the directory of the virtual environment, which all instances share; `cargo clean` removes it.
fn environment() -> PathBuf {
    place::root().join("target/moto").join(Moto::VERSION)
}

/// Returns its Python, if it is complete.
fn installed() -> Option<PathBuf> {
    let environment = environment();
    environment.join("complete").is_file().then(|| environment.join("python/bin/python"))
}

/// Returns whether Python can make a virtual environment: Debian has a package for that.
fn can_be_installed() -> bool {
    process::run(Command::new("python3").args(["-c", "import ensurepip, venv"])).is_ok()
}

/// Installs moto. Only one process does this at a time, and an instance never sees a part of it. A virtual environment cannot be
/// moved, so a file marks a complete one.
fn install() -> Result<PathBuf> {
    let environment = environment();
    fs::create_dir_all(&environment).with_context(|| format!("cannot create {}", environment.display()))?;
    let lock = fs::File::create(environment.join("lock"))?;
    lock.lock()?;
    if let Some(program) = installed() {
        return Ok(program);
    }
    eprintln!("getting moto {} from PyPI", Moto::VERSION);
    process::run(Command::new("python3").args(["-m", "venv", "--clear"]).arg(environment.join("python")))?;
    let program = environment.join("python/bin/python");
    let mut pip = Command::new(environment.join("python/bin/pip"));
    pip.args(["install", "--quiet", "--disable-pip-version-check"]).arg(format!("moto[server]=={}", Moto::VERSION));
    process::run(&mut pip).context(
        "cannot get moto from PyPI: give pip an index (~/.config/pip/pip.conf), or start moto \
         elsewhere and set MOTO_URL",
    )?;
    fs::write(environment.join("complete"), "")?;
    Ok(program)
}
