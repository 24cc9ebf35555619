//! Redis, which is killed, and forgets what a power failure would.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use idem_services::Instance;
use redis::aio::MultiplexedConnection;
use tokio::task::{block_in_place, spawn_blocking};

/// How it ends, before it is started again.
#[derive(Debug, Clone, Copy)]
pub(super) enum Death {
    /// By SIGKILL: what it has given to the kernel is there.
    Killed,
    /// With the machine: with `appendfsync everysec` the last second of its file is not there.
    PowerFailure,
}

pub(super) struct Server {
    instance: Instance,
}

impl Server {
    /// Starts one with another setting, which may be empty.
    pub(super) async fn start(setting: &'static str) -> Result<Self> {
        spawn_blocking(move || {
            let mut instance = idem_services::Redis::start()?;
            if !setting.is_empty() {
                instance.stop()?;
                let file = instance.home().join("redis.conf");
                // Of several lines, the last one counts.
                let text = format!("{}{setting}\n", fs::read_to_string(&file)?);
                fs::write(&file, text).context("cannot write the configuration of Redis")?;
                instance.start_again()?;
            }
            Ok(Self { instance })
        })
        .await?
    }

    pub(super) fn url(&self) -> &str {
        self.instance.url()
    }

    pub(super) async fn client(&self) -> Result<MultiplexedConnection> {
        Ok(redis::Client::open(self.url())?.get_multiplexed_async_connection().await?)
    }

    /// Kills it, and starts it again.
    pub(super) async fn die(&mut self, how: Death) -> Result<()> {
        let synced = match how {
            Death::Killed => None,
            Death::PowerFailure => {
                let file = self.log()?;
                let length = fs::metadata(&file)?.len();
                tokio::time::sleep(Duration::from_secs(1)).await;
                Some((file, length))
            }
        };
        block_in_place(|| {
            self.instance.kill()?;
            if let Some((file, length)) = synced {
                let log = File::options().write(true).open(file)?;
                log.set_len(length).context("cannot cut the file of Redis")?;
            }
            self.instance.start_again()
        })
    }

    /// Returns the file to which Redis appends.
    fn log(&self) -> Result<PathBuf> {
        let folder = self.instance.home().join("appendonlydir");
        let files = fs::read_dir(&folder)?.filter_map(|entry| Some(entry.ok()?.path()));
        let mut files: Vec<PathBuf> = files.filter(|file| file.to_string_lossy().ends_with(".incr.aof")).collect();
        files.sort();
        files.pop().context("Redis has no append-only file")
    }
}
