//! The Java runtime for Kafka.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// The Java version that Kafka 4 is compiled for.
const OLDEST: u32 = 17;

/// Returns the program in `JAVA_HOME`, else that in `PATH`, if it is new enough.
pub(super) fn program() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let both = [home.filter(|java| java.is_file()), process::which("java", &[])];
    both.into_iter().flatten().find(|java| version(java).is_some_and(|version| version >= OLDEST))
}

/// Returns Java with Kafka's jars, run in `home`: small, quick to start, and without files outside `home`.
pub(super) fn command(home: &Path, libs: &Path) -> Result<Command> {
    let mut java = Command::new(program().with_context(|| format!("Apache Kafka needs Java {OLDEST} or newer"))?);
    java.current_dir(home);
    // One compiler tier and a single-threaded garbage collector: the CPUs are for the tests.
    java.args(["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    java.args(["-Djava.net.preferIPv4Stack=true", "-Dlog4j2.configurationFile=log4j2.properties"]);
    java.arg(format!("-Djava.io.tmpdir={}", home.display()));
    // Java itself expands the asterisk.
    java.arg("-cp").arg(libs.join("*"));
    Ok(java)
}

/// Returns the 17 of `openjdk version "17.0.15" 2025-04-15`.
fn version(java: &Path) -> Option<u32> {
    let output = process::run(Command::new(java).arg("-version")).ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, version) = said.split_once("version \"")?;
    version.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}
