//! Side-by-side measurements of idem: `cargo xtask bench` and `cargo xtask soak` run this program as a release build.
//!
//! | file | contents |
//! |---|---|
//! | `options`, `servers` | the command line; the servers, and the other library |
//! | `all`, `plan` | the rounds of all sides; one case, all cases and thresholds |
//! | `sides` | all sides, ready to run |
//! | `hand_written` | A: no dedup; B, the baseline: a loop written with sqlx |
//! | `worker`, `sqlite` | C, D and E: idem on PostgreSQL, also from each broker; on SQLite |
//! | `sqs` | B from SQS, and the requests of both |
//! | `framework`, `idle` | idem alone, with a store that does nothing; `bin/allocations` counts its allocations |
//! | `calls` | external calls at once, with few connections |
//! | `requests` | HTTP requests in the layer, and their repeats |
//! | `redis` | a worker that deduplicates in Redis |
//! | `relay` | the relay of an outbox, compared to loops that publish |
//! | `idle_worker` | a worker that has nothing to do |
//! | `operator` | what somebody on call waits for: answers, the command and its page, replays |
//! | `soak` | a worker at half of its load for an hour: what grows |
//! | `tables` | millions of claims: the bytes of each, and the cost of pruning |
//! | `queue`, `message` | the broker of all sides, a queue in memory; the messages and the tables |
//! | `machine`, `samples` | the machine of the measurement; medians and ratios |
//! | `outcome` | the results, as a table |

mod all;
mod calls;
mod framework;
mod hand_written;
mod idle;
mod idle_worker;
mod machine;
mod message;
mod operator;
mod options;
mod outcome;
mod plan;
mod queue;
mod redis;
mod relay;
mod requests;
mod samples;
mod servers;
mod sides;
mod soak;
mod sqlite;
mod sqs;
mod tables;
mod worker;

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;

use crate::options::{Arguments, What};
use crate::servers::Servers;

fn main() -> Result<ExitCode> {
    let Arguments { what, all } = Arguments::parse();
    let runtime = tokio::runtime::Runtime::new()?;
    // The servers end behind the runtime, so that no worker sees that.
    Ok(ExitCode::from(match what {
        None => {
            let outcome = runtime.block_on(all::measure(&Servers::start(&all.brokers())?, &all))?;
            print!("{outcome}");
            outcome.verdict()
        }
        Some(What::Calls) => runtime.block_on(calls::measure(&Servers::start(&[])?.database))?,
        Some(What::Requests) => runtime.block_on(requests::measure(&Servers::start(&[])?.database))?,
        Some(What::Redis) => runtime.block_on(redis::measure(&Servers::start(&[])?.database))?,
        Some(What::Framework) => {
            let framework = runtime.block_on(framework::measure(200_000))?;
            println!("{framework}");
            u8::from(!framework.is_lean())
        }
        Some(What::Relay(options)) => {
            let report = runtime.block_on(relay::measure(&Servers::start(&options.broker)?, &options))?;
            print!("{report}");
            report.verdict()
        }
        Some(What::Idle(options)) => {
            runtime.block_on(idle_worker::measure(&Servers::start(&options.broker)?, &options))?
        }
        Some(What::Operator(options)) => {
            runtime.block_on(operator::measure(&Servers::start(&[])?.database, &options))?
        }
        Some(What::Soak(options)) => runtime.block_on(soak::measure(&Servers::start(&[options.broker])?, &options))?,
        Some(What::SoakWorker { broker }) => {
            let servers = Servers::start(&[broker])?;
            runtime.block_on(soak::work(&servers.database, broker, servers.address(broker)?))?;
            0
        }
    }))
}
