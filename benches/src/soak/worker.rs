//! The worker of a soak, in a process of its own, so that its memory is that of a worker and of nothing else; and that process,
//! seen from outside.

use std::io::{Read, Write};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use idem::prelude::*;
use idem_brokers::Broker as Client;
use sqlx::PgConnection;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::{sleep, timeout};

use crate::message::{EFFECT, IDEM, OrderPaid};
use crate::plan::{Broker, on_broker};

/// The name of the queue, stream or topic.
pub(crate) const NAME: &str = "idem-bench-soak";

/// The schema of the worker's tables.
pub(crate) const SCHEMA: &str = "idem_bench_soak";

/// How long the broker keeps messages, and the claims for a little longer: short, so that most of the run has claims to
/// prune.
pub(crate) const KEPT: Duration = Duration::from_secs(300);
const RETENTION: Duration = Duration::from_secs(360);

/// One run of so many fails.
const FAILS: u64 = 100;

/// Counts the handler's runs.
#[derive(Clone, Default)]
struct Runs(Arc<AtomicU64>);

/// Fails after its statement, in every hundredth run.
#[idempotent(key = "event_id", name = "order_paid")]
async fn order_paid_or_failed(
    event: OrderPaid,
    State(runs): State<Runs>,
    tx: &mut PgConnection,
) -> Result<(), BoxError> {
    sqlx::query(EFFECT).bind(IDEM).bind(event.order_id).bind(event.amount).execute(tx).await?;
    match runs.0.fetch_add(1, Relaxed) % FAILS {
        0 => Err("every hundredth run fails".into()),
        _ => Ok(()),
    }
}

/// Runs the worker until the standard input ends, which it does if the parent process ends, too. Prints the number of
/// processed messages continually.
pub(crate) async fn work(url: &str, broker: Broker, address: &str) -> Result<()> {
    on_broker!(broker, B => run(url, B::source(address, NAME).await?).await)
}

async fn run(url: &str, source: impl idem::Source) -> Result<()> {
    let store = Postgres::options(url).schema(SCHEMA).retention(RETENTION).connect().await?;
    let processed = Arc::new(AtomicU64::new(0));
    let counted = processed.clone();
    let worker = Worker::new("soak", store, source).state(Runs::default()).handler::<order_paid_or_failed>().observe(
        move |observed| {
            if *observed.outcome == Outcome::Processed {
                counted.fetch_add(1, Relaxed);
            }
        },
    );
    let (end, ended) = oneshot::channel();
    // Not a task of the runtime, whose end would wait for the read.
    std::thread::spawn(move || {
        let _ = std::io::stdin().read(&mut [0]);
        let _ = end.send(());
    });
    let print = async {
        loop {
            // A parent that has ended reads nothing, and the standard input tells that.
            let _ = writeln!(std::io::stdout(), "{}", processed.load(Relaxed));
            sleep(Duration::from_millis(100)).await;
        }
    };
    worker
        .run_until(async {
            tokio::select! { _ = ended => {}, () = print => {} }
        })
        .await?;
    Ok(())
}

/// A worker shuts down within 30 seconds.
const END: Duration = Duration::from_secs(60);

pub(crate) struct Process {
    child: Child,
    pid: u32,
    processed: Arc<AtomicU64>,
}

impl Process {
    pub(crate) fn start(broker: Broker, url: &str, address: &str) -> Result<Self> {
        let name = broker.to_possible_value().context("the broker has no name")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["soak-worker", "--broker", name.get_name()]);
        command.env("DATABASE_URL", url).env(broker.variable(), address);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true).spawn()?;
        let pid = child.id().context("the worker has ended")?;
        let mut lines = BufReader::new(child.stdout.take().context("the worker has no output")?).lines();
        let processed = Arc::new(AtomicU64::new(0));
        let read = processed.clone();
        tokio::spawn(async move {
            while let Ok(Some(line)) = lines.next_line().await {
                if let Ok(number) = line.parse() {
                    read.store(number, Relaxed);
                }
            }
        });
        Ok(Self { child, pid, processed })
    }

    /// Returns the number of processed messages, as the worker has printed it last.
    pub(crate) fn processed(&self) -> u64 {
        self.processed.load(Relaxed)
    }

    /// Returns the megabytes that the process has allocated, without the pages of files, such as the program itself.
    pub(crate) fn memory(&self) -> Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid)).context("the worker has ended")?;
        let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no such line")?;
        Ok(line.trim().trim_end_matches(" kB").parse::<f64>()? * 1024.0 / 1e6)
    }

    /// Ends the worker, which finishes what runs.
    pub(crate) async fn end(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        match timeout(END, self.child.wait()).await {
            Ok(status) => ensure!(status?.success(), "the worker failed"),
            Err(_) => bail!("the worker did not end within {END:?}"),
        }
        Ok(())
    }
}
