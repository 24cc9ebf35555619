//! Side-by-side measurements of idem. `cargo xtask bench` starts the servers and runs this program.
//!
//! | file | contents |
//! |---|---|
//! | `single` | one message per transaction: the rounds, and the verdict; `report` prints it |
//! | `all` | the rounds of all sides; `plan`: the cases and thresholds; `sides` runs them; `case`: one of them |
//! | `autocommit` | A: no dedup |
//! | `by_hand`, `by_hand_brokers` | B, the baseline: a loop written with sqlx; the same from each broker |
//! | `worker`, `sqlite`, `brokers` | C: idem on PostgreSQL, on SQLite, from each broker |
//! | `inbox` | idem with and without `.inbox()`: throughput, and the wait in the inbox |
//! | `calls` | external calls at once, with few connections |
//! | `connections` | three workers on one store, with few connections |
//! | `batches` | D and E: idem in batches, with the unchanged handler or a batch handler |
//! | `raw` | F: the best the database can do |
//! | `pgbench` | PostgreSQL's own client, which validates the baseline |
//! | `peers` | other libraries, which are separate programs |
//! | `framework`, `idle`, `nothing` | idem alone; `bin/allocations` counts its allocations |
//! | `latency` | from publish to commit, at a fixed rate, compared to a loop by hand on each broker |
//! | `relay` | the relay of an outbox, compared to loops that publish |
//! | `idle_worker`, `wire` | a worker that has nothing to do; a relay that counts its statements |
//! | `soak` | a worker at half of its load for an hour: what grows |
//! | `tables`, `prune` | millions of claims: the bytes of each, and the cost of pruning |
//! | `queue`, `message` | the broker of all sides, a queue in memory; the messages and the tables |
//! | `options` | the command line |
//! | `machine`, `samples` | the machine of the measurement; medians and ratios |
//! | `limits` | the numbers that must not exceed a limit |
//! | `outcome`, `table`, `plot` | the results and their file, as a table, as a plot |

mod all;
mod autocommit;
mod batches;
mod brokers;
mod by_hand;
mod by_hand_brokers;
mod calls;
mod case;
mod connections;
mod framework;
mod idle;
mod idle_worker;
mod inbox;
mod latency;
mod limits;
mod machine;
mod message;
mod nothing;
mod options;
mod outcome;
mod peers;
mod pgbench;
mod plan;
mod plot;
mod prune;
mod queue;
mod raw;
mod relay;
mod report;
mod samples;
mod sides;
mod single;
mod soak;
mod sqlite;
mod steady;
mod table;
mod tables;
mod wire;
mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::options::{Arguments, What};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Arguments::parse().what {
        What::Single { scale } => {
            let report = single::measure(&database("bench single")?, scale).await?;
            print!("{report}");
            report.save()?;
            Ok(ExitCode::from(report.verdict()))
        }
        What::Inbox { scale } => {
            inbox::measure(&database("bench inbox")?, scale).await?;
            Ok(ExitCode::SUCCESS)
        }
        What::Calls { scale } => {
            let reached = calls::measure(&database("bench calls")?, scale).await?;
            Ok(ExitCode::from(u8::from(!reached)))
        }
        What::Connections { scale } => {
            connections::measure(&database("bench connections")?, scale).await?;
            Ok(ExitCode::SUCCESS)
        }
        What::All(options) => {
            let outcome = all::measure(&options).await?;
            print!("{outcome}");
            outcome.save()?;
            plot::save(&outcome)?;
            Ok(ExitCode::from(outcome.verdict()))
        }
        What::Framework => {
            let framework = framework::measure(200_000).await?;
            println!("{framework}");
            Ok(ExitCode::from(u8::from(!framework.is_lean())))
        }
        What::Latency(pace) => {
            let report = latency::measure(&database("bench latency")?, &pace).await?;
            print!("{report}");
            report.save()?;
            Ok(ExitCode::from(report.verdict()))
        }
        What::Relay(options) => {
            let report = relay::measure(&database("bench relay")?, &options).await?;
            print!("{report}");
            report.save()?;
            Ok(ExitCode::from(report.verdict()))
        }
        What::Idle(options) => Ok(ExitCode::from(idle_worker::measure(&database("bench idle")?, &options).await?)),
        What::Soak(options) => Ok(ExitCode::from(soak::measure(&database("soak")?, &options).await?)),
        What::SoakWorker { broker } => {
            soak::work(&database("soak")?, broker).await?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Returns the server's address.
fn database(command: &str) -> Result<String> {
    std::env::var("DATABASE_URL").with_context(|| format!("DATABASE_URL is not set: say `cargo xtask {command}`"))
}
