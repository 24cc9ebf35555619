//! `cargo xtask bench`: side-by-side measurements against real servers.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};

use crate::cargo::{cargo, root};
use crate::measured::{BROKERS, Servers, program, servers};

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
    /// Only the sides whose names contain this; can be given several times. Tables that they do not use are not filled.
    #[arg(long)]
    only: Vec<String>,
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
    /// Measure external calls: 100 of 50 ms at once, with 20 connections.
    ///
    /// Exit code 0: at least 0.9 of the possible 2,000 messages per second. 1: fewer.
    Calls {
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
    /// Measure the time from publish to commit at a fixed rate, from each broker, against a loop by hand.
    ///
    /// Exit code 0: idem's p50 and p99 are at most those of the loop. 1: one is higher. 2: the messages were not
    /// published at the rate, so the run proves nothing.
    Latency {
        /// Messages per second.
        #[arg(long, default_value_t = 1000.0)]
        rate: f64,
        /// Seconds that each side runs in each round.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Rounds, in addition to the warm-up.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Only this broker.
        #[arg(long, value_parser = BROKERS)]
        broker: Option<String>,
    },
    /// Measure the relay of an outbox: messages per second, also with one key and beside an open transaction, and the
    /// time from commit to confirm at a fixed rate; on each broker, compared to loops that publish with the broker's
    /// client, and on RabbitMQ to backbone-outbox.
    ///
    /// Exit code 0: the relay has at least 0.8 of the loop's throughput, 3 times that of backbone-outbox, and beside an
    /// open transaction at least 0.8 of its own; p50 and p99 are at most 5 and 50 ms. 1: a target is missed. 2: the
    /// messages were not committed at the rate, so the run proves nothing.
    Relay {
        /// Messages of each run as fast as possible.
        #[arg(long, default_value_t = 200_000)]
        messages: usize,
        /// Messages per second of each run at a fixed rate.
        #[arg(long, default_value_t = 1000.0)]
        rate: f64,
        /// Seconds of each run at a fixed rate.
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
        /// Rounds, in addition to the warm-up.
        #[arg(long, default_value_t = 5)]
        rounds: usize,
        /// Only this broker.
        #[arg(long, value_parser = BROKERS)]
        broker: Option<String>,
    },
    /// Measure a worker that has nothing to do: statements per second, and processor time.
    ///
    /// Exit code 0: at most 2 statements per second, and 0.1 % of a core. 1: more.
    Idle {
        /// Seconds of each measurement, of which there are two per source.
        #[arg(long, default_value_t = 60.0)]
        seconds: f64,
        /// Where messages would come from; can be given several times.
        #[arg(long, default_values = ["memory", "nats"], value_parser = ["memory", "rabbitmq", "nats", "kafka"])]
        source: Vec<String>,
    },
}

/// Runs the measurement as a release build, on the servers that the environment names, otherwise on servers started for
/// it. Exits with the exit code of the measurement.
pub(crate) fn run(options: &Options) -> Result<()> {
    // Built before a server is started, so that only the measurement runs at the same time.
    let mut bench = program()?;
    let servers = match &options.what {
        Some(What::Framework) => {
            bench.arg("framework");
            None
        }
        Some(what) => Some(what.prepare(&mut bench)?),
        None => Some(options.prepare(&mut bench)?),
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

impl What {
    /// Adds the arguments, and starts the servers.
    fn prepare(&self, bench: &mut Command) -> Result<Servers> {
        let (args, brokers): (Vec<String>, Vec<&str>) = match self {
            Self::Single { scale } => (vec!["single".into(), scale.to_string()], Vec::new()),
            Self::Inbox { scale } => (vec!["inbox".into(), scale.to_string()], Vec::new()),
            Self::Calls { scale } => (vec!["calls".into(), scale.to_string()], Vec::new()),
            Self::Connections { scale } => (vec!["connections".into(), scale.to_string()], Vec::new()),
            Self::Framework => (vec!["framework".into()], Vec::new()),
            Self::Latency { rate, seconds, rounds, broker } => {
                let mut args = vec!["latency".into(), format!("--rate={rate}"), format!("--seconds={seconds}")];
                args.push(format!("--rounds={rounds}"));
                args.extend(broker.iter().map(|broker| format!("--broker={broker}")));
                (args, broker.as_deref().map_or_else(|| BROKERS.to_vec(), |broker| vec![broker]))
            }
            Self::Relay { messages, rate, seconds, rounds, broker } => {
                let mut args = vec!["relay".into(), format!("--messages={messages}"), format!("--rate={rate}")];
                args.extend([format!("--seconds={seconds}"), format!("--rounds={rounds}")]);
                args.extend(broker.iter().map(|broker| format!("--broker={broker}")));
                if broker.as_deref().is_none_or(|broker| broker == "rabbitmq") {
                    args.push(format!("--peer={}", peer(RELAY_PEER)?));
                }
                (args, broker.as_deref().map_or_else(|| BROKERS.to_vec(), |broker| vec![broker]))
            }
            Self::Idle { seconds, source } => {
                let mut args = vec!["idle".into(), format!("--seconds={seconds}")];
                args.extend(source.iter().map(|source| format!("--source={source}")));
                (args, source.iter().map(String::as_str).filter(|source| BROKERS.contains(source)).collect())
            }
        };
        servers(bench.args(args), &brokers)
    }
}

impl Options {
    /// Adds the arguments of the whole comparison, builds the peers, and starts the servers.
    fn prepare(&self, bench: &mut Command) -> Result<Servers> {
        bench.arg("all").args(self.all());
        for peer in if self.no_peers { Vec::new() } else { peers()? } {
            bench.args(["--peer", &peer]);
        }
        if self.no_brokers {
            bench.arg("--no-brokers");
        }
        let servers = servers(bench, if self.no_brokers { &[] } else { &BROKERS })?;
        if servers.owns_database {
            // The measurement may change the checkpoint settings of a server that has no other users.
            bench.arg("--own-server");
        }
        Ok(servers)
    }

    fn all(&self) -> Vec<String> {
        let mut args = Vec::new();
        let (seconds, rounds, rows) = if self.quick { (0.2, 2, 100_000) } else { (1.0, 7, 10_000_000) };
        let mut give = |name: &str, value: String| args.extend([format!("--{name}"), value]);
        give("seconds", self.seconds.unwrap_or(seconds).to_string());
        give("rounds", self.rounds.unwrap_or(rounds).to_string());
        give("rows", self.rows.unwrap_or(rows).to_string());
        self.only.iter().for_each(|only| give("only", only.clone()));
        let given: Vec<String> = std::env::args().skip(1).collect();
        give("command", format!("cargo xtask {}", given.join(" ")));
        args
    }
}

/// The peer of the relay, which is no side of the whole comparison.
const RELAY_PEER: &str = "relay-backbone-outbox";

/// Builds each peer of the whole comparison.
fn peers() -> Result<Vec<String>> {
    let mut peers = Vec::new();
    for entry in fs::read_dir(root().join("benches/peers"))? {
        let (path, name) = (entry.as_ref().map(fs::DirEntry::path), entry.as_ref().map(fs::DirEntry::file_name));
        let (Ok(path), Ok(name)) = (path, name) else { continue };
        let name = name.to_string_lossy();
        if name != RELAY_PEER && path.join("src/main.rs").is_file() {
            peers.push(peer(&name)?);
        }
    }
    peers.sort();
    Ok(peers)
}

/// Builds a peer and returns `name=program`. A peer that does not build is reported and has no program; this is not an
/// error.
fn peer(name: &str) -> Result<String> {
    eprintln!("building the peer {name}");
    fs::create_dir_all(root().join("target/bench"))?;
    let program = build(&root().join("benches/peers").join(name), &root().join("target/peers"), name)?;
    Ok(format!("{name}={program}"))
}

fn build(path: &Path, target: &Path, name: &str) -> Result<String> {
    let log = root().join(format!("target/bench/{name}.log"));
    let mut build = cargo(["build", "--release", "--locked", "--quiet"]);
    build.arg("--manifest-path").arg(path.join("Cargo.toml")).arg("--target-dir").arg(target);
    let built = build.stderr(fs::File::create(log)?).status().context("cannot run cargo")?.success();
    Ok(if built { target.join(format!("release/peer-{name}")).display().to_string() } else { String::new() })
}
