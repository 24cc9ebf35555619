//! Programs other than the servers: the build tools for clients written in C (librdkafka, with TLS by OpenSSL), and
//! pgbouncer.

use std::process::{Command, Stdio};

use anyhow::{Result, bail};

use crate::{apt, process};

const PROGRAMS: &[&str] = &["cc", "c++", "make", "pkg-config"];
const LIBRARIES: &[&str] = &["zlib", "libssl"];
/// The packages of Debian and Ubuntu that contain them.
const PACKAGES: &[&str] = &["gcc", "g++", "make", "pkg-config", "zlib1g-dev", "libssl-dev"];

/// Looks for compilers and libraries, and installs missing ones, as root on Debian or Ubuntu.
///
/// # Errors
/// They are missing and cannot be installed; the text lists them.
pub fn tools() -> Result<()> {
    let program = |name: &&&str| process::which(name, &[]).is_none();
    let library = |name: &&&str| !has(name);
    let missing: Vec<&str> = PROGRAMS.iter().filter(program).chain(LIBRARIES.iter().filter(library)).copied().collect();
    if missing.is_empty() {
        return Ok(());
    }
    if !apt::is_possible() {
        bail!(
            "not here: {}, which it takes to build librdkafka. Install them (on Debian or Ubuntu: apt-get install {}; as \
             root this command does that by itself)",
            missing.join(", "),
            PACKAGES.join(" ")
        );
    }
    apt::add(PACKAGES)
}

/// Looks for pgbouncer, which a suite starts by itself, and installs it as root on Debian or Ubuntu. Elsewhere it is
/// not installed, and the suite reports that it was skipped.
///
/// # Errors
/// It cannot be installed although packages can.
pub fn pooler() -> Result<()> {
    program("pgbouncer")
}

/// Looks for a program, and installs the package of this name as root on Debian or Ubuntu.
///
/// # Errors
/// It cannot be installed although packages can.
pub fn program(name: &str) -> Result<()> {
    let is_here = process::which(name, &["/usr/sbin"]).is_some();
    if is_here || !apt::is_possible() { Ok(()) } else { apt::add(&[name]) }
}

fn has(library: &str) -> bool {
    let mut command = Command::new("pkg-config");
    let status = command.args(["--exists", library]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
