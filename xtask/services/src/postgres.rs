//! PostgreSQL.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use nix::sys::signal::Signal;

use crate::server::Server;
use crate::{Instance, place, process};

/// PostgreSQL: user `idem`, a superuser, with password `secret` and a database `idem`.
///
/// It is configured as in production: fsync is on, and the password is required (scram-sha-256). There is no Unix
/// socket. PREPARE TRANSACTION is allowed, so that tests can show what idem does when handlers run it.
///
/// If `IDEM_POSTGRES_BIN` is set, it is the directory of the programs to run (`initdb` and others), so that tests can
/// run against a version other than the installed one.
#[derive(Debug, Clone, Copy)]
pub struct Postgres;

const SETTINGS: &str = "
listen_addresses = '127.0.0.1'
unix_socket_directories = ''
max_connections = 300
max_prepared_transactions = 32
shared_buffers = 256MB
fsync = on
synchronous_commit = on
";

/// The form in which PostgreSQL stores the password `secret` (its manual, `pg_authid`), with one round of hashing
/// instead of 4,096 (RFC 7677): those took three quarters of the clients' processor time in tests, which log in often.
const PASSWORD: &str = "SCRAM-SHA-256$1:aWRlbSB0ZXN0IHNlcnZlcg==\
     $dvTSn8u0lYhrh4xzHJiv1gXdVSQZVS9EiChkalRBxWM=:6Xpizu6LdNe0rNQQjzdkmmXIoMD6SJtztlXwi20EFV4=";

impl Postgres {
    /// Starts a private instance. Fails if PostgreSQL is not installed, or does not respond within a minute.
    pub fn start() -> Result<Instance> {
        Instance::start(&SERVER)
    }
}

pub(crate) const SERVER: Server = Server {
    name: "postgres",
    variable: "DATABASE_URL",
    url: |port| format!("postgres://idem:secret@127.0.0.1:{port}/idem"),
    packages: &["postgresql"],
    choice: "IDEM_POSTGRES_BIN",
    is_installed: || programs().is_some(),
    create,
    launch,
    pids: &["data/postmaster.pid"],
    // The "fast shutdown" of PostgreSQL's manual, section 18.5; upon SIGTERM it would wait for its clients.
    shutdown: Signal::SIGINT,
};

fn create(home: &Path, port: u16) -> Result<()> {
    place::write(&home.join("password"), "secret\n")?;
    let mut initdb = program("initdb", home)?;
    initdb.args(["-D", "data", "-U", "idem", "--pwfile=password", "--auth=scram-sha-256"]);
    process::run(initdb.args(["--encoding=UTF8", "--locale=C", "--no-sync"]))?;
    fs::OpenOptions::new()
        .append(true)
        .open(home.join("data/postgresql.conf"))
        .and_then(|mut file| std::io::Write::write_all(&mut file, format!("{SETTINGS}port = {port}\n").as_bytes()))
        .context("cannot write postgresql.conf")?;
    // Single-user mode creates the database before any client can connect, and without a client program. It reads a
    // statement in each line.
    let statements = format!("CREATE DATABASE idem\nALTER ROLE idem PASSWORD '{PASSWORD}'\n");
    place::write(&home.join("create.sql"), &statements)?;
    let mut single = Command::new("sh");
    place::as_servant(&mut single, home)?;
    let postgres = programs().unwrap_or_default().join("postgres");
    process::run(single.args(["-c", "exec \"$0\" --single -D data postgres < create.sql"]).arg(postgres))?;
    Ok(())
}

fn launch(home: &Path, _port: u16) -> Result<()> {
    if !process::recorded(home, SERVER.pids).into_iter().any(process::is_alive) {
        // After a kill, the dead server may not be reaped yet, and PostgreSQL would consider it alive.
        let _ = fs::remove_file(home.join("data/postmaster.pid"));
    }
    let mut pg_ctl = program("pg_ctl", home)?;
    let started = process::run(pg_ctl.args(["-D", "data", "-l", "log", "-w", "-t", "60", "start"]));
    started.with_context(|| fs::read_to_string(home.join("log")).unwrap_or_default())?;
    Ok(())
}

/// Returns a program of PostgreSQL, run in `home` as the user for servers.
fn program(name: &str, home: &Path) -> Result<Command> {
    let mut command = Command::new(programs().context("the programs of PostgreSQL are not installed")?.join(name));
    place::as_servant(&mut command, home)?;
    // Variables for other servers must not reach the programs.
    for variable in ["PGDATA", "PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE"] {
        command.env_remove(variable);
    }
    Ok(command)
}

/// Returns the directory of `initdb` and `pg_ctl`: the selected one, else the newest of Debian's, which are not in
/// `PATH`, else that in `PATH`.
fn programs() -> Option<PathBuf> {
    if let Some(chosen) = SERVER.chosen() {
        return Some(chosen);
    }
    let version = |dir: &Path| dir.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let debian = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let debian = debian.filter(|dir| dir.join("bin/initdb").is_file()).max_by_key(|dir| version(dir));
    let in_path = || process::which("initdb", &[])?.parent().map(Path::to_owned);
    debian.map(|dir| dir.join("bin")).or_else(in_path).filter(|dir| dir.join("pg_ctl").is_file())
}
