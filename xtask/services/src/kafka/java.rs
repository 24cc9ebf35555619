//! Java, which runs Kafka.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::process;

/// Kafka 4 is compiled for this version.
const OLDEST: u32 = 17;

/// The program in `JAVA_HOME`, else that in `PATH`, if it is new enough.
pub(super) fn program() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let both = [home.filter(|java| java.is_file()), process::which("java", &[])];
    both.into_iter().flatten().find(|java| version(java).is_some_and(|version| version >= OLDEST))
}

/// Java with Kafka's jars, in `home`: small, quick to start, and leaving nothing behind outside of `home`.
pub(super) fn command(home: &Path, libs: &Path) -> Result<Command> {
    let mut java = Command::new(program().with_context(|| format!("Apache Kafka needs Java {OLDEST} or newer"))?);
    java.current_dir(home);
    // Compiled once and not twice, collected by one thread: the processors are for the tests.
    java.args(["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    java.args(["-Djava.net.preferIPv4Stack=true", "-Dlog4j2.configurationFile=log4j2.properties"]);
    java.arg(format!("-Djava.io.tmpdir={}", home.display()));
    // Java itself knows what the asterisk means.
    java.arg("-cp").arg(libs.join("*"));
    Ok(java)
}

/// The 17 of `openjdk version "17.0.15" 2025-04-15`.
fn version(java: &Path) -> Option<u32> {
    let output = process::run(Command::new(java).arg("-version")).ok()?;
    let said = String::from_utf8_lossy(&output.stderr);
    let (_, version) = said.split_once("version \"")?;
    version.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok()
}
