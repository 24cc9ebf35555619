//! A server process, which outlives this process.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::{place, process};

/// Runs the server in `home`, and waits up to two minutes until it responds. Its output goes to `log`, its process id to
/// `pid`. If it ends, the error contains its log.
pub(crate) fn launch(name: &str, command: &mut Command, home: &Path, answers: impl Fn() -> bool) -> Result<()> {
    let child = detach(command, home, "log")?;
    place::write(&home.join("pid"), &child.to_string())?;
    process::wait_until(&format!("the start of {name}"), Duration::from_secs(120), || {
        if !process::is_alive(child) {
            bail!("{name} ended: {}", fs::read_to_string(home.join("log")).unwrap_or_default());
        }
        Ok(answers())
    })
}

/// Starts a process that receives no signals from the terminal.
pub(crate) fn detach(command: &mut Command, home: &Path, log: &str) -> Result<i32> {
    let log = fs::File::create(home.join(log))?;
    let command = command.current_dir(home).env("HOME", home).process_group(0).stdin(Stdio::null());
    let child = command.stdout(log.try_clone()?).stderr(log).spawn();
    let child = child.with_context(|| format!("cannot run {}", command.get_program().to_string_lossy()))?;
    i32::try_from(child.id()).context("a process id out of range")
}
