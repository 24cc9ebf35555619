//! The process of the worker, seen from outside.

use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use clap::ValueEnum;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use crate::case::Broker;

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
