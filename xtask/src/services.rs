//! `cargo xtask services`: finds, starts and stops the servers that tests need.

use anyhow::Result;
use clap::Subcommand;
use idem_services::Status;

#[derive(Subcommand)]
pub(crate) enum What {
    /// Find or start each server, and print its address as a line for the shell. Running servers are reused.
    Up,
    /// Stop the servers that were started, and remove their data.
    Down,
    /// Show which servers run, and where.
    Status,
}

pub(crate) fn run(what: What) -> Result<()> {
    match what {
        What::Up => {
            let all = idem_services::up()?;
            report(&all);
            print!("{}", idem_services::exports(&all));
        }
        What::Down => idem_services::down()?,
        What::Status => {
            for Status { server, url, from, .. } in idem_services::status() {
                println!("{server:10} {:55} {from}", url.as_deref().unwrap_or("-"));
            }
        }
    }
    Ok(())
}

/// The servers for the duration of one chore. Those that this chore started are stopped with it: `cargo xtask services up`
/// before it keeps them.
pub(crate) struct Up {
    /// The addresses, as variables of the environment.
    pub(crate) env: Vec<(&'static str, String)>,
    end: bool,
}

impl Up {
    pub(crate) fn new() -> Result<Self> {
        // The tools that build the clients are installed first.
        idem_services::tools()?;
        let ran_before = idem_services::status().iter().any(|status| status.url.is_some());
        let all = idem_services::up()?;
        report(&all);
        let env = all.into_iter().filter_map(|status| Some((status.variable, status.url?))).collect();
        Ok(Self { env, end: !ran_before })
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.end
            && let Err(error) = idem_services::down()
        {
            eprintln!("cannot end the servers: {error:#}");
        }
    }
}

/// Prints to stderr, because a shell evaluates stdout.
fn report(all: &[Status]) {
    for Status { server, from, .. } in all {
        eprintln!("{server}: {from}");
    }
}
