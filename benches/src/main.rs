//! Side-by-side measurements of idem. `cargo xtask bench single` starts a server and runs this program.
//!
//! | file | what |
//! |---|---|
//! | `single` | the rounds, and what they prove |
//! | `worker` | idem |
//! | `by_hand` | the baseline: a loop written with sqlx |
//! | `pgbench` | PostgreSQL's own client, which judges the baseline |
//! | `queue` | the broker of all sides: a queue in memory |
//! | `message` | the messages and the tables |
//! | `report` | medians, ratios, the table, the file |

mod by_hand;
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
    if args.next().as_deref() != Some("single") {
        bail!("say `cargo xtask bench single`");
    }
    let scale = args.next().map_or(Ok(1.0), |scale| scale.parse()).context("the scale is a number, as in 0.5")?;
    let url = std::env::var("DATABASE_URL").context("DATABASE_URL is not set: say `cargo xtask bench single`")?;
    let report = single::measure(&url, scale).await?;
    print!("{report}");
    report.save()?;
    Ok(ExitCode::from(report.verdict()))
}
