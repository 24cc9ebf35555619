//! Programs other than the servers, such as the build tools for clients written in C (librdkafka, with TLS by OpenSSL).

use std::process::{Command, Stdio};

use anyhow::Result;

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
    let is_here = |name: &&str| process::which(name, &[]).is_some();
    if PROGRAMS.iter().all(is_here) && LIBRARIES.iter().all(|name| has(name)) {
        return Ok(());
    }
    let (programs, libraries) = (PROGRAMS.join(", "), LIBRARIES.join(" and "));
    apt::add(PACKAGES, &format!("it takes {programs} with {libraries} to build librdkafka"))
}

/// Looks for a program, and installs the package of this name as root on Debian or Ubuntu. Elsewhere it is not installed.
///
/// # Errors
/// It cannot be installed although packages can.
pub fn program(name: &str) -> Result<()> {
    let is_here = process::which(name, &["/usr/sbin"]).is_some();
    if is_here || !apt::is_possible() { Ok(()) } else { apt::add(&[name], name) }
}

fn has(library: &str) -> bool {
    let mut command = Command::new("pkg-config");
    let status = command.args(["--exists", library]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}
