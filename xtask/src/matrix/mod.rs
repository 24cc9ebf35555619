//! `cargo xtask matrix`: runs the tests that depend on server versions, on the installed servers, which must be those of
//! Debian 12, and on newer ones.

mod newest;
mod suite;

use std::time::Instant;

use anyhow::{Result, bail};
use clap::Args;

use newest::Found;
use suite::Suite;

#[derive(Args)]
pub(crate) struct Options {
    /// Only the suites whose names begin with this: `adapters`, `stores`, `faults`, `demo`.
    #[arg(long)]
    suite: Option<String>,
    /// Only this set of servers: `installed`, `newest`.
    #[arg(long)]
    servers: Option<String>,
}

/// A set of servers, and the variables that select them.
struct Set {
    name: &'static str,
    servers: Vec<Found>,
}

/// Runs each suite on each set of servers, and prints one table. Running shared servers are stopped first.
pub(crate) fn run(options: &Options) -> Result<()> {
    let chosen = |name: &str| options.servers.as_ref().is_none_or(|only| name.starts_with(only.as_str()));
    let mut sets = Vec::new();
    if chosen("installed") {
        idem_services::prepare()?;
        sets.push(Set { name: "installed", servers: newest::installed() });
    }
    if chosen("newest") {
        sets.push(Set { name: "newest", servers: newest::get() });
    }
    let wanted = |suite: &&Suite| options.suite.as_ref().is_none_or(|only| suite.name().starts_with(only.as_str()));
    let suites: Vec<&Suite> = Suite::ALL.iter().filter(wanted).collect();
    if sets.is_empty() || suites.is_empty() {
        bail!("there are no such servers or suites: see `cargo xtask matrix --help`");
    }
    let mut lines = Vec::new();
    let mut failed = 0;
    for set in &sets {
        for suite in &suites {
            eprintln!("\n{} on the servers that are {}", suite.name(), set.name);
            let began = Instant::now();
            let passed = suite.run(&set.servers)?;
            failed += usize::from(!passed);
            let verdict = if passed { "passed" } else { "FAILED" };
            lines.push(format!(
                "{:10} {:9} {verdict} ({:.0} s)",
                set.name,
                suite.name(),
                began.elapsed().as_secs_f64()
            ));
        }
    }
    println!();
    for set in &sets {
        for server in &set.servers {
            println!("{:10} {server}", set.name);
            failed += usize::from(server.is_missing());
        }
    }
    println!();
    lines.iter().for_each(|line| println!("{line}"));
    if failed > 0 {
        bail!("{failed} of the suites failed, or of the servers cannot be had");
    }
    Ok(())
}
