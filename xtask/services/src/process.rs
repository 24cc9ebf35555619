//! Processes: starts servers, which outlive this process, checks whether they are alive, signals them and waits for them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

use crate::place;

/// Returns whether the process runs. A zombie does not.
pub(crate) fn is_alive(pid: i32) -> bool {
    // Reaps it if it was our child; ECHILD means that it was not.
    let _ = waitpid(Pid::from_raw(pid), Some(WaitPidFlag::WNOHANG));
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
    stat.is_ok_and(|stat| !matches!(fields(&stat).next(), Some("Z" | "X")))
}

/// Returns whether each thread of the process has stopped or ended.
pub(crate) fn is_frozen(pid: i32) -> bool {
    fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().all(|thread| {
        let stat = fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        matches!(fields(&stat).next(), None | Some("T" | "Z" | "X"))
    })
}

/// Returns the working directory of the process; empty if the process has ended.
pub(crate) fn directory(pid: i32) -> PathBuf {
    fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default()
}

/// Returns the process and all its descendants.
pub(crate) fn tree(root: i32) -> Vec<i32> {
    let mut parents = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Ok(stat) = fs::read_to_string(entry.path().join("stat")) else { continue };
        if let Some(parent) = fields(&stat).nth(1).and_then(|field| field.parse::<i32>().ok()) {
            parents.push((pid, parent));
        }
    }
    let mut tree = vec![root];
    let mut next = 0;
    while let Some(&parent) = tree.get(next) {
        tree.extend(parents.iter().filter(|(_, of)| *of == parent).map(|(pid, _)| *pid));
        next += 1;
    }
    tree
}

/// Sends the signal. A process that has already ended is not an error.
pub(crate) fn signal(pid: i32, signal: Signal) -> Result<()> {
    match kill(Pid::from_raw(pid), signal) {
        Ok(()) | Err(Errno::ESRCH) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("cannot send {signal} to process {pid}")),
    }
}

/// Waits until `done` returns true, checking every 20 ms.
pub(crate) fn wait_until(what: &str, limit: Duration, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        if start.elapsed() > limit {
            bail!("{what} took more than {} s", limit.as_secs());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Returns the processes whose ids are in the first lines of these files of `home`.
pub(crate) fn recorded(home: &Path, files: &[&str]) -> Vec<i32> {
    let read = |file: &&str| fs::read_to_string(home.join(file)).ok()?.lines().next()?.trim().parse().ok();
    files.iter().filter_map(read).collect()
}

/// Returns the path in this environment variable, with links resolved: the kernel reports that of a process in this way.
pub(crate) fn variable(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)?;
    Some(path.canonicalize().unwrap_or(path))
}

/// Returns whether a server on this port answers these bytes by these.
pub(crate) fn answers(port: u16, hello: &[u8], answer: &[u8]) -> bool {
    let (address, limit) = (SocketAddr::from((Ipv4Addr::LOCALHOST, port)), Duration::from_secs(1));
    let mut first = vec![0; answer.len()];
    let answered = TcpStream::connect_timeout(&address, limit).and_then(|mut stream| {
        stream.set_read_timeout(Some(limit))?;
        stream.write_all(hello)?;
        stream.read_exact(&mut first)
    });
    answered.is_ok() && first == answer
}

/// Runs a command to completion without a terminal. If it fails, the error contains its output.
pub(crate) fn run(command: &mut Command) -> Result<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot run {name}"))?;
    if !output.status.success() {
        let said =
            [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).trim().to_owned()).join("\n");
        bail!("{name} failed ({}): {}", output.status, said.trim());
    }
    Ok(output)
}

/// Returns the path of the program, searched in `PATH` and then in these directories.
pub(crate) fn which(program: &str, beside: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let beside = beside.iter().map(PathBuf::from);
    std::env::split_paths(&path).chain(beside).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Returns the fields of `/proc/<pid>/stat` from the state on, which follow the program's name. That is in parentheses, and may
/// contain spaces and parentheses (proc(5)).
fn fields(stat: &str) -> impl Iterator<Item = &str> {
    stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace()
}

/// Runs the server in `home`, and waits up to two minutes until it responds. Its output goes to `log`, its process id to
/// `pid`. If it ends, the error contains its log.
pub(crate) fn launch(name: &str, command: &mut Command, home: &Path, answers: impl Fn() -> bool) -> Result<()> {
    let child = detach(command, home, "log")?;
    place::write(&home.join("pid"), &child.to_string())?;
    wait_until(&format!("the start of {name}"), Duration::from_secs(120), || {
        if !is_alive(child) {
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
