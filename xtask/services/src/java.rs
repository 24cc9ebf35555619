//! Servers that run on Java: the runtime, and their jars, which are downloaded from Maven Central.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{place, process};

/// The oldest Java version that the servers run on: Kafka 4 is compiled for it.
const OLDEST: u32 = 17;

const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies";

/// Returns the program in `JAVA_HOME`, else that in `PATH`, if it is new enough.
pub(crate) fn program() -> Option<PathBuf> {
    let home = std::env::var_os("JAVA_HOME").map(|home| PathBuf::from(home).join("bin/java"));
    let both = [home.filter(|java| java.is_file()), process::which("java", &[])];
    both.into_iter().flatten().find(|java| version(java).is_some_and(|version| version >= OLDEST))
}

/// Returns Java with these jars, run in `home`: small, quick to start, and without files outside `home`.
pub(crate) fn command(home: &Path, libs: &Path) -> Result<Command> {
    let mut java = Command::new(program().with_context(|| format!("Java {OLDEST} or newer is needed"))?);
    java.current_dir(home);
    // One compiler tier and a single-threaded garbage collector: the CPUs are for the tests.
    java.args(["-Xms64m", "-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData"]);
    java.arg("-Djava.net.preferIPv4Stack=true").arg(format!("-Djava.io.tmpdir={}", home.display()));
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

/// The jars of a server in Maven Central.
pub(crate) struct Jars {
    /// The name of the server, and of its directory in `target`.
    pub(crate) name: &'static str,
    pub(crate) directory: &'static str,
    pub(crate) version: &'static str,
    /// A project whose dependency is the server, of the version `${version}`.
    pub(crate) pom: &'static str,
    /// What else can be done where Maven Central cannot be reached.
    pub(crate) otherwise: &'static str,
}

impl Jars {
    /// Returns the directory with the jars. Missing jars are downloaded.
    ///
    /// # Errors
    /// Maven Central cannot be reached, for example; the text names the alternatives.
    pub(crate) fn get(&self) -> Result<PathBuf> {
        self.downloaded().map_or_else(|| self.download(), Ok)
    }

    /// Returns whether [`get`](Self::get) can succeed.
    pub(crate) fn can_be_had(&self) -> bool {
        self.downloaded().is_some() || process::which("mvn", &[]).is_some()
    }

    fn downloaded(&self) -> Option<PathBuf> {
        Some(self.cache().join(self.version).join("libs")).filter(|libs| libs.is_dir())
    }

    /// Returns the directory of the jars that all instances share; `cargo clean` removes it.
    fn cache(&self) -> PathBuf {
        place::root().join("target").join(self.directory)
    }

    /// Downloads the jars. Only one process does this at a time, and under a temporary name until all are complete: an
    /// instance never sees a partial set.
    fn download(&self) -> Result<PathBuf> {
        let Self { name, version, .. } = self;
        let cache = self.cache();
        fs::create_dir_all(&cache).with_context(|| format!("cannot create {}", cache.display()))?;
        let lock = fs::File::create(cache.join("lock"))?;
        lock.lock()?;
        if let Some(libs) = self.downloaded() {
            return Ok(libs);
        }
        eprintln!("getting {name} {version} from Maven Central");
        let unfinished = cache.join("unfinished");
        let _ = fs::remove_dir_all(&unfinished);
        fs::create_dir(&unfinished)?;
        self.maven(&unfinished).with_context(|| {
            format!(
                "cannot get {name} from Maven Central: give Maven a mirror (~/.m2/settings.xml), or {}",
                self.otherwise
            )
        })?;
        fs::rename(&unfinished, cache.join(version))?;
        self.downloaded().context("Maven has copied no jars")
    }

    fn maven(&self, dir: &Path) -> Result<()> {
        fs::write(dir.join("pom.xml"), self.pom)?;
        let mut mvn = Command::new("mvn");
        mvn.current_dir(dir).args(["-B", "-q", COPY, "-DincludeScope=runtime", "-DoutputDirectory=libs"]);
        process::run(mvn.arg(format!("-Dserver.version={}", self.version)))?;
        Ok(())
    }
}
