//! `cargo xtask bench`: side-by-side measurements against real servers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use idem_services::Instance;

use crate::cargo::{cargo, root};

/// Measure idem and everything it is compared to, in turns: writes a table, `target/bench/bench.json` and
/// `target/bench/bench.svg`.
///
/// Exit code 0: all required thresholds are met. 1: one is not. 2: the handwritten loop has less than 0.6 of pgbench's
/// throughput, so the run proves nothing.
#[derive(Args)]
pub(crate) struct Options {
    #[command(subcommand)]
    what: Option<What>,
    /// A quick run: short rounds, small tables. Its numbers prove nothing.
    #[arg(long)]
    quick: bool,
    /// Claims in the largest table; 10 million by default.
    #[arg(long)]
    rows: Option<usize>,
    /// Rounds, in addition to the warm-up; 7 by default.
    #[arg(long)]
    rounds: Option<usize>,
    /// Seconds that each side runs in each round; 1 by default.
    #[arg(long)]
    seconds: Option<f64>,
    /// Only the sides whose names contain this.
    #[arg(long)]
    only: Option<String>,
    /// Without the other libraries, which take minutes to build.
    #[arg(long)]
    no_peers: bool,
    /// Without RabbitMQ, NATS and Kafka.
    #[arg(long)]
    no_brokers: bool,
}

#[derive(Subcommand)]
enum What {
    /// Measure the throughput of one message per transaction, against a handwritten loop with sqlx, and pgbench.
    ///
    /// Exit code 0: idem has at least 0.95 of the loop's throughput with a concurrency of 16. 1: it has less. 2: the
    /// loop has less than 0.6 of pgbench's throughput, so the run proves nothing.
    Single {
        /// Multiplies the number of messages, for longer or shorter rounds.
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
    /// Measure throughput and latency of `.inbox()`, compared to the same worker without it.
    Inbox {
        /// Multiplies the number of messages, for longer or shorter rounds.
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
    /// Measure three workers on one store with fewer and fewer connections.
    Connections {
        /// Multiplies the number of messages, for longer or shorter rounds.
        #[arg(long, default_value_t = 1.0)]
        scale: f64,
    },
    /// Measure the framework alone, with a store and a source that do nothing: time, allocations, and their origins.
    Framework,
}

/// Runs the measurement as a release build, on the servers that the environment names, otherwise on servers started for
/// it. Exits with the exit code of the measurement.
pub(crate) fn run(options: &Options) -> Result<()> {
    // Built before a server is started, so that only the measurement runs at the same time.
    crate::cargo::run(&mut cargo(["build", "--release", "--package", "idem-bench", "--bins"]))?;
    let mut bench = Command::new(root().join("target/release/idem-bench"));
    let servers = match &options.what {
        Some(What::Single { scale }) => {
            bench.args(["single", &scale.to_string()]);
            servers(&mut bench, false, false)?
        }
        Some(What::Inbox { scale }) => {
            bench.args(["inbox", &scale.to_string()]);
            servers(&mut bench, false, false)?
        }
        Some(What::Connections { scale }) => {
            bench.args(["connections", &scale.to_string()]);
            servers(&mut bench, false, false)?
        }
        Some(What::Framework) => {
            bench.arg("framework");
            Vec::new()
        }
        None => {
            bench.arg("all").args(options.all());
            for peer in if options.no_peers { Vec::new() } else { peers()? } {
                bench.args(["--peer", &peer]);
            }
            servers(&mut bench, true, !options.no_brokers)?
        }
    };
    let mut status = bench.status().context("cannot run the measurement")?;
    if matches!(options.what, Some(What::Framework)) && status.success() {
        // Without optimizations, so that stack traces are complete; the number of allocations is the same.
        let mut count = cargo(["run", "--quiet", "--package", "idem-bench", "--bin", "idem-bench-allocations"]);
        status = count.stderr(Stdio::null()).status()?;
    }
    // Dropped here, because exiting the process drops nothing.
    drop(servers);
    std::process::exit(status.code().unwrap_or(1))
}

impl Options {
    fn all(&self) -> Vec<String> {
        let mut args = Vec::new();
        let (seconds, rounds, rows) = if self.quick { (0.2, 2, 100_000) } else { (1.0, 7, 10_000_000) };
        let mut give = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        give("seconds", self.seconds.unwrap_or(seconds).to_string());
        give("rounds", self.rounds.unwrap_or(rounds).to_string());
        give("rows", self.rows.unwrap_or(rows).to_string());
        if let Some(only) = &self.only {
            give("only", only.clone());
        }
        let given: Vec<String> = std::env::args().skip(1).collect();
        give("command", format!("cargo xtask {}", given.join(" ")));
        args
    }
}

/// Builds each peer and returns `name=program`. A peer that does not build is reported and has no program; this is not
/// an error.
fn peers() -> Result<Vec<String>> {
    let (directory, target) = (root().join("benches/peers"), root().join("target/peers"));
    fs::create_dir_all(root().join("target/bench"))?;
    let mut peers = Vec::new();
    for entry in fs::read_dir(&directory)? {
        let (path, name) = (entry.as_ref().map(fs::DirEntry::path), entry.as_ref().map(fs::DirEntry::file_name));
        let (Ok(path), Ok(name)) = (path, name) else { continue };
        let name = name.to_string_lossy().into_owned();
        if path.join("src/main.rs").is_file() {
            eprintln!("building the peer {name}");
            peers.push(format!("{name}={}", build(&path, &target, &name)?));
        }
    }
    peers.sort();
    Ok(peers)
}

fn build(path: &Path, target: &Path, name: &str) -> Result<String> {
    let log = root().join(format!("target/bench/{name}.log"));
    let mut build = cargo(["build", "--release", "--locked", "--quiet"]);
    build.arg("--manifest-path").arg(path.join("Cargo.toml")).arg("--target-dir").arg(target);
    let built = build.stderr(fs::File::create(log)?).status().context("cannot run cargo")?.success();
    Ok(if built { target.join(format!("release/peer-{name}")).display().to_string() } else { String::new() })
}

type Start = fn() -> Result<Instance>;

const BROKERS: [(&str, Start); 3] = [
    ("AMQP_URL", idem_services::RabbitMq::start),
    ("NATS_URL", idem_services::Nats::start),
    ("KAFKA_BROKERS", idem_services::Kafka::start),
];

/// Starts servers for this measurement alone, so that no concurrent test uses them.
fn servers(bench: &mut Command, all: bool, brokers: bool) -> Result<Vec<Instance>> {
    let named = |variable: &str| std::env::var(variable).is_ok_and(|url| !url.is_empty());
    idem_services::prepare()?;
    let mut servers = Vec::new();
    if !named("DATABASE_URL") {
        eprintln!("starting a PostgreSQL for this measurement");
        let server = idem_services::Postgres::start()?;
        bench.env("DATABASE_URL", server.url());
        servers.push(server);
        if all {
            // The measurement may change the checkpoint settings of a server that has no other users.
            bench.arg("--own-server");
        }
    }
    for (variable, start) in BROKERS.iter().filter(|(variable, _)| brokers && !named(variable)) {
        match start() {
            Ok(server) => {
                bench.env(variable, server.url());
                servers.push(server);
            }
            // The measurement reports what is missing.
            Err(error) => eprintln!("{variable}: {error:#}"),
        }
    }
    Ok(servers)
}
