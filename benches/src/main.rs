//! Side-by-side measurements of idem. `cargo xtask bench single` starts a server and runs this program.
//!
//! | file | what |
//! |---|---|
//! | `single` | the rounds, and what they prove |
//! | `worker` | idem |
//! | `inbox` | idem with `.inbox()` beside idem without: throughput, and the wait in the inbox |
//! | `by_hand` | the baseline: a loop written with sqlx |
//! | `pgbench` | PostgreSQL's own client, which judges the baseline |
//! | `queue` | the broker of all sides: a queue in memory |
//! | `message` | the messages and the tables |
//! | `report` | medians, ratios, the table, the file |

mod by_hand;
mod inbox;
mod message;
mod pgbench;
mod queue;
mod report;
mod single;
mod worker;

use std::process::ExitCode;

use anyhow::{Context, Result, bail};

#[tokio::main]
async fn main() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let what = args.next();
    let scale = args.next().map_or(Ok(1.0), |scale| scale.parse()).context("the scale is a number, as in 0.5")?;
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set: say `cargo xtask bench single`")?;
    match what.as_deref() {
        Some("single") => {}
        Some("inbox") => {
            inbox::measure(&url, scale).await?;
            return Ok(ExitCode::SUCCESS);
        }
        _ => bail!("say `cargo xtask bench single` or `cargo xtask bench inbox`"),
    }
    let report = single::measure(&url, scale).await?;
    print!("{report}");
    report.save()?;
    Ok(ExitCode::from(report.verdict()))
}
