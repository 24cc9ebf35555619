//! The data directories, ports and users of servers.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use nix::unistd::{Uid, User, geteuid};

/// The root of this repository.
pub fn root() -> PathBuf {
    let services = Path::new(env!("CARGO_MANIFEST_DIR"));
    services.ancestors().nth(2).unwrap_or(services).to_owned()
}

/// `target/services` of this repository: the record of the running servers.
pub(crate) fn record() -> PathBuf {
    root().join("target/services")
}

/// The user for servers that refuse to run as root; `None` if this process is not root.
pub(crate) fn servant() -> Result<Option<User>> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    for name in ["postgres", "nobody"] {
        if let Some(user) = User::from_name(name)? {
            return Ok(Some(user));
        }
    }
    bail!("as root a user `postgres` or `nobody` is needed to run the server, and there is neither");
}

/// Makes the command run in `dir`, as the user for servers if there is one.
pub(crate) fn as_servant(command: &mut Command, dir: &Path) -> Result<()> {
    use std::os::unix::process::CommandExt;
    command.current_dir(dir);
    if let Some(user) = servant()? {
        // The standard library drops root's supplementary groups when it changes the user.
        command.uid(user.uid.as_raw()).gid(user.gid.as_raw()).env("HOME", dir).env("USER", &user.name);
    }
    Ok(())
}

/// Creates an empty directory for the data of one instance, which the user for servers owns and can reach. With
/// `system`, the directory is inside it, because the server sees nothing else.
pub(crate) fn new_home(server: &str, system: Option<&Path>) -> Result<PathBuf> {
    let record = record();
    fs::create_dir_all(&record).with_context(|| format!("cannot create {}", record.display()))?;
    let home = match system {
        Some(system) => system.join("var/tmp"),
        None if servant()?.is_none() || reachable(&record) => record,
        None => PathBuf::from("/var/tmp"),
    };
    let home = home.join(format!("idem-{server}-{}-{}", std::process::id(), number()));
    fs::create_dir(&home).with_context(|| format!("cannot create {}", home.display()))?;
    fs::set_permissions(&home, fs::Permissions::from_mode(0o700))?;
    if let Some(user) = servant()? {
        std::os::unix::fs::chown(&home, Some(user.uid.as_raw()), Some(user.gid.as_raw()))?;
    }
    Ok(home)
}

/// Returns whether all users may enter each directory on the path. `/root`, for example, is closed to all but root.
fn reachable(dir: &Path) -> bool {
    dir.ancestors().filter_map(|dir| fs::metadata(dir).ok()).all(|meta| meta.mode() & 0o001 != 0)
}

/// Returns a free port of the loopback address, below the range that the kernel uses for outgoing connections (32768
/// and up). It is thus still free when a stopped server returns to it.
pub(crate) fn free_port() -> Result<u16> {
    for _ in 0..2000 {
        let port = 20_000 + number() % 12_000;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return Ok(port);
        }
    }
    bail!("no port between 20000 and 32000 is free on 127.0.0.1");
}

/// Writes a file owned by the owner of its directory.
pub(crate) fn write(file: &Path, text: &str) -> Result<()> {
    fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    if let (true, Some(dir)) = (geteuid().is_root(), file.parent()) {
        let owner = fs::metadata(dir)?;
        std::os::unix::fs::chown(file, Some(Uid::from_raw(owner.uid()).as_raw()), Some(owner.gid()))?;
    }
    Ok(())
}

/// Returns a number that other processes and earlier calls are unlikely to have used.
fn number() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
    let mixed = (now / 1000).wrapping_add(std::process::id().wrapping_mul(7919));
    (mixed as u16).wrapping_add(NEXT.fetch_add(257, Ordering::Relaxed))
}
