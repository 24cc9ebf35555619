//! Kafka's jars: installed, or downloaded from Maven Central.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{place, process};

/// The version that is downloaded.
pub(super) const VERSION: &str = "4.1.1";
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Returns the directory with the jars. Missing jars are downloaded.
///
/// # Errors
/// Maven Central cannot be reached, for example; the text names the alternatives.
pub(super) fn find() -> Result<PathBuf> {
    installed().or_else(assembled).map_or_else(assemble, Ok)
}

/// Returns whether [`find`] can succeed.
pub(super) fn can_be_had() -> bool {
    installed().or_else(assembled).is_some() || process::which("mvn", &[]).is_some()
}

fn installed() -> Option<PathBuf> {
    let homes = [std::env::var_os("KAFKA_HOME").map(PathBuf::from), Some(PathBuf::from("/opt/kafka"))];
    homes.into_iter().flatten().map(|home| home.join("libs")).find(|libs| libs.is_dir())
}

fn assembled() -> Option<PathBuf> {
    Some(cache().join(VERSION).join("libs")).filter(|libs| libs.is_dir())
}

/// Returns the directory of the jars that all instances share; `cargo clean` removes it.
fn cache() -> PathBuf {
    place::root().join("target/kafka")
}

/// Downloads the jars. Only one process does this at a time, and under a temporary name until all are complete: an
/// instance never sees a partial set.
fn assemble() -> Result<PathBuf> {
    fs::create_dir_all(cache()).with_context(|| format!("cannot create {}", cache().display()))?;
    let lock = fs::File::create(cache().join("lock"))?;
    lock.lock()?;
    if let Some(libs) = assembled() {
        return Ok(libs);
    }
    eprintln!("getting Apache Kafka {VERSION} from Maven Central");
    let unfinished = cache().join("unfinished");
    let _ = fs::remove_dir_all(&unfinished);
    fs::create_dir(&unfinished)?;
    maven(&unfinished).context(
        "cannot get Apache Kafka from Maven Central: give Maven a mirror (~/.m2/settings.xml), or unpack Apache Kafka 4 \
         and set KAFKA_HOME, or set KAFKA_BROKERS",
    )?;
    fs::rename(&unfinished, cache().join(VERSION))?;
    assembled().context("Maven has copied no jars")
}

fn maven(dir: &Path) -> Result<()> {
    fs::write(dir.join("pom.xml"), include_str!("pom.xml"))?;
    let mut mvn = Command::new("mvn");
    mvn.current_dir(dir).args(["-B", "-q", COPY, "-DincludeScope=runtime", "-DoutputDirectory=libs"]);
    process::run(mvn.arg(format!("-Dkafka.version={VERSION}")))?;
    Ok(())
}
