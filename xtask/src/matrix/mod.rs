//! `cargo xtask matrix`: runs the tests that depend on server versions, on the installed servers, which must be those of
//! Debian 12, and on newer ones.

mod newest;

use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use clap::Args;

use newest::{Found, Kind, found};

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
    ("adapters", "test -- -p idem-rabbitmq -p idem-nats -p idem-kafka"),
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
