//! Installs servers and other programs on Debian or Ubuntu, such as the build tools for clients written in C (librdkafka, with TLS
//! by OpenSSL).

use std::fs;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::unistd::geteuid;

use crate::server::Server;
use crate::{browser, process};

/// Installs the packages of those servers that are not installed, as [`add`] does.
pub(crate) fn install(servers: impl Iterator<Item = &'static Server>) -> Result<()> {
    let missing: Vec<_> = servers.filter(|server| !(server.is_installed)()).collect();
    let packages: Vec<_> = missing.iter().flat_map(|server| server.packages).copied().collect();
    if packages.is_empty() {
        return Ok(());
    }
    let words = |word: fn(&&Server) -> &'static str| missing.iter().map(word).collect::<Vec<_>>().join(", ");
    let (names, variables) = (words(|server| server.name), words(|server| server.variable));
    add(&packages, &format!("not here: {names}, and not set: {variables}"))
}

/// Returns whether packages can be installed: as root, on Debian or Ubuntu.
fn is_possible() -> bool {
    process::which("apt-get", &[]).is_some() && geteuid().is_root()
}

/// Installs these packages, as root on Debian or Ubuntu; elsewhere the error says what is missing. The packages' services are
/// not started.
fn add(packages: &[&str], missing: &str) -> Result<()> {
    let list = packages.join(" ");
    ensure!(
        is_possible(),
        "{missing}. On Debian or Ubuntu: apt-get install {list}; as root this command does that by itself"
    );
    eprintln!("installing {list}");
    let _policy = Policy::refuse()?;
    apt(&["update"])?;
    let mut args = vec!["install", "--yes", "--no-install-recommends"];
    args.extend(packages);
    apt(&args)
}

fn apt(args: &[&str]) -> Result<()> {
    let mut command = Command::new("apt-get");
    // Another apt process may be running, for example on a machine that has just booted.
    command.args(["--quiet", "--option", "DPkg::Lock::Timeout=300"]).args(args);
    command.env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    // Output goes to stderr: a shell evaluates the lines on stdout.
    let status = command.stdout(std::io::stderr()).status().context("cannot run apt-get")?;
    ensure!(status.success(), "apt-get {} failed ({status})", args.join(" "));
    Ok(())
}

/// While this value exists, packages do not start their services (Debian policy, section 9.3.3.1: invoke-rc.d calls
/// `policy-rc.d`, and exit code 101 forbids the action).
struct Policy {
    ours: bool,
}

const POLICY: &str = "/usr/sbin/policy-rc.d";

impl Policy {
    fn refuse() -> Result<Self> {
        if Path::new(POLICY).exists() {
            return Ok(Self { ours: false });
        }
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o755).open(POLICY)?;
        file.set_permissions(fs::Permissions::from_mode(0o755))?;
        std::io::Write::write_all(&mut file, b"#!/bin/sh\nexit 101\n")?;
        Ok(Self { ours: true })
    }
}

impl Drop for Policy {
    fn drop(&mut self) {
        if self.ours {
            let _ = fs::remove_file(POLICY);
        }
    }
}

const PROGRAMS: &[&str] = &["cc", "c++", "make", "pkg-config"];
const LIBRARIES: &[&str] = &["zlib", "libssl"];
/// The packages of Debian and Ubuntu that contain them.
const PACKAGES: &[&str] = &["gcc", "g++", "make", "pkg-config", "zlib1g-dev", "libssl-dev"];

/// Looks for compilers and libraries, and installs missing ones, as root on Debian or Ubuntu.
///
/// # Errors
/// They are missing and cannot be installed; the text lists them.
pub fn tools() -> Result<()> {
    let is_here = |name: &&str| process::which(name, &[]).is_some();
    if PROGRAMS.iter().all(is_here) && LIBRARIES.iter().all(|name| has(name)) {
        return Ok(());
    }
    let (programs, libraries) = (PROGRAMS.join(", "), LIBRARIES.join(" and "));
    add(PACKAGES, &format!("it takes {programs} with {libraries} to build librdkafka"))
}

/// Looks for a program, and installs the package of this name as root on Debian or Ubuntu. Elsewhere it is not installed.
///
/// # Errors
/// It cannot be installed although packages can.
pub fn program(name: &str) -> Result<()> {
    let is_here = process::which(name, &["/usr/sbin"]).is_some();
    if is_here || !is_possible() { Ok(()) } else { add(&[name], name) }
}

/// Looks for Chromium and its driver, and installs them as root on Debian. Elsewhere they are not installed, and the tests that
/// need them say so.
///
/// # Errors
/// They cannot be installed although packages can.
pub fn chromium() -> Result<()> {
    if browser::is_installed() || !is_possible() { Ok(()) } else { add(&browser::PACKAGES, "chromium and its driver") }
}

fn has(library: &str) -> bool {
    let mut command = Command::new("pkg-config");
    let status = command.args(["--exists", library]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
