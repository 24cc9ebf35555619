//! A process that is killed, and started again at once.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use tokio::process::{Child, Command};
use tokio::time::timeout;

/// How long it may take to end by itself.
const PATIENCE: Duration = Duration::from_secs(60);

/// This program with other arguments.
pub(crate) struct Restarted {
    log: PathBuf,
    args: Vec<String>,
    env: Vec<(&'static str, String)>,
    child: Child,
}

impl Restarted {
    /// Starts it with these arguments, and with the addresses of servers in its environment.
    pub(crate) fn start(log: &Path, args: &[&str], env: &[(&'static str, &str)]) -> Result<Self> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let env: Vec<_> = env.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
        let child = spawn(&args, &env, File::create(log)?)?;
        Ok(Self { log: log.to_owned(), args, env, child })
    }

    /// Kills it (SIGKILL), and starts it again at once.
    pub(crate) async fn kill_and_start(&mut self) -> Result<()> {
        if let Some(status) = self.child.try_wait()? {
            bail!("a process has ended by itself ({status}): see {}", self.log.display());
        }
        self.child.kill().await?;
        self.child = spawn(&self.args, &self.env, File::options().append(true).open(&self.log)?)?;
        Ok(())
    }

    /// Lets it finish its work and end.
    pub(crate) async fn dismiss(mut self) -> Result<()> {
        drop(self.child.stdin.take());
        let status = timeout(PATIENCE, self.child.wait()).await.context("a process does not end")??;
        ensure!(status.success(), "a process has failed ({status}): see {}", self.log.display());
        Ok(())
    }
}

fn spawn(args: &[String], env: &[(&'static str, String)], log: File) -> Result<Child> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(args).envs(env.iter().cloned()).kill_on_drop(true);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(log);
    command.spawn().context("cannot start a process")
}
