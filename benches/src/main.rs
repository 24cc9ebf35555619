//! Side-by-side measurements of idem. `cargo xtask bench` starts the servers and runs this program.
//!
//! | file | what |
//! |---|---|
//! | `single` | one message per transaction: the rounds, and what they prove; `report` prints it |
//! | `all` | the rounds of all sides; `plan`: which, and what must be reached; `sides` runs them; `case`: one of them |
//! | `autocommit` | A: no dedup |
//! | `by_hand` | B, the baseline: a loop written with sqlx |
//! | `worker`, `sqlite`, `brokers` | C: idem on PostgreSQL, on SQLite, from each broker |
//! | `inbox` | idem with `.inbox()` beside idem without: throughput, and the wait in the inbox |
//! | `batches` | D and E: idem in batches, the handler unchanged or of the whole set |
//! | `raw` | F: what the database can do at best |
//! | `pgbench` | PostgreSQL's own client, which judges the baseline |
//! | `peers` | other libraries, which are programs of their own |
//! | `framework`, `idle`, `nothing` | idem alone; `bin/allocations` counts what it allocates |
//! | `tables`, `prune` | claims by the million: bytes of each, and what their removal costs |
//! | `queue`, `message` | the broker of all sides, a queue in memory; the messages and the tables |
//! | `machine`, `samples` | where it was measured; medians and ratios |
//! | `outcome`, `table`, `plot` | what came out and its file, as a table, as a plot |

mod all;
mod autocommit;
mod batches;
mod brokers;
mod by_hand;
mod case;
mod framework;
mod idle;
mod inbox;
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
mod report;
mod samples;
mod sides;
mod single;
mod sqlite;
mod table;
mod tables;
mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;

use crate::options::{Arguments, What};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    match Arguments::parse().what {
        What::Single { scale } => {
            let url =
                std::env::var("DATABASE_URL").context("DATABASE_URL is not set: say `cargo xtask bench single`")?;
            let report = single::measure(&url, scale).await?;
            print!("{report}");
            report.save()?;
            Ok(ExitCode::from(report.verdict()))
        }
        What::Inbox { scale } => {
            let url =
                std::env::var("DATABASE_URL").context("DATABASE_URL is not set: say `cargo xtask bench inbox`")?;
            inbox::measure(&url, scale).await?;
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
    }
}
