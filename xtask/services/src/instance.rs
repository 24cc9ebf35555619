//! An instance of a server: a directory with its data, a port, and its processes, which end when the process of the test ends.

use std::fs;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use crate::server::Server;
use crate::{place, process, rabbitmq};

/// An instance, which outlives this process.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Local {
    server: String,
    pub(crate) home: PathBuf,
    pub(crate) port: u16,
    /// The program that the environment selected when the instance was created.
    pub(crate) chosen: Option<PathBuf>,
}

impl Local {
    /// Creates an instance with a new data directory, lets `prepare` change that, and starts it. If this fails, nothing is
    /// left behind.
    pub(crate) fn create(server: &Server, prepare: impl FnOnce(&Path) -> Result<()>) -> Result<Self> {
        let (name, packages) = (server.name, server.packages.join(" "));
        ensure!(
            (server.is_installed)(),
            "{name} is not installed: run `cargo xtask services up`, or install {packages}"
        );
        // A server in another system sees nothing outside of it.
        let home = place::new_home(name, rabbitmq::root().filter(|_| name == rabbitmq::SERVER.name).as_deref())?;
        let local = Self { server: name.to_owned(), home, port: place::free_port()?, chosen: server.chosen() };
        let created = (server.create)(&local.home, local.port).and_then(|()| prepare(&local.home));
        if let Err(error) = created.and_then(|()| local.start()) {
            let _ = local.remove();
            return Err(error.context(format!("cannot start {name}")));
        }
        Ok(local)
    }

    /// Restarts it on the same port with the same data.
    fn start(&self) -> Result<()> {
        (Server::named(&self.server)?.launch)(&self.home, self.port)
    }

    /// Kills all its processes at once, as a power failure does.
    fn kill(&self) -> Result<()> {
        let all = self.tree();
        all.iter().try_for_each(|pid| process::signal(*pid, Signal::SIGKILL))?;
        let ended = || Ok(!all.iter().any(|pid| process::is_alive(*pid)));
        process::wait_until("the end of killed processes", Duration::from_secs(30), ended)
    }

    /// Kills it and removes its data.
    pub(crate) fn remove(&self) -> Result<()> {
        self.kill()?;
        match fs::remove_dir_all(&self.home) {
            Err(error) if self.home.exists() => {
                Err(error).with_context(|| format!("cannot remove {}", self.home.display()))
            }
            _ => Ok(()),
        }
    }

    /// Returns whether it runs and listens.
    pub(crate) fn is_up(&self) -> bool {
        !self.processes().is_empty() && TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok()
    }

    /// Returns its running processes, the main one first. The working directory reveals a process id that the kernel has
    /// since reused.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let files = Server::named(&self.server).map_or(&[][..], |server| server.pids);
        let ours = |pid: &i32| process::is_alive(*pid) && process::directory(*pid).starts_with(&self.home);
        process::recorded(&self.home, files).into_iter().filter(ours).collect()
    }

    fn tree(&self) -> Vec<i32> {
        self.processes().into_iter().flat_map(process::tree).collect()
    }
}

/// A private server with its own data, which one test may stop, kill and pause.
///
/// The server ends and its data is removed when the value is dropped or the process ends, for any reason.
/// Calls block: in an async test use `spawn_blocking`, unless nothing else runs on that thread.
#[derive(Debug)]
pub struct Instance {
    // Declared first: the watcher is cancelled before the instance is removed.
    watcher: Option<Watcher>,
    local: Local,
    url: String,
}

impl Instance {
    pub(crate) fn start(server: &Server) -> Result<Self> {
        Self::prepared(server, None, |_| Ok(()))
    }

    /// Starts an instance whose data `prepare` has changed, with another address than that of its port.
    pub(crate) fn prepared(
        server: &Server,
        url: Option<String>,
        prepare: impl FnOnce(&Path) -> Result<()>,
    ) -> Result<Self> {
        let local = Local::create(server, prepare)?;
        let url = url.unwrap_or_else(|| (server.url)(local.port));
        let mut instance = Self { watcher: None, local, url };
        instance.watch()?;
        Ok(instance)
    }

    /// Returns its address, with user and password. It does not change when the server restarts.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Shuts it down cleanly, and waits until it has ended. The server closes its connections.
    ///
    /// # Errors
    /// It does not end within a minute.
    pub fn stop(&mut self) -> Result<()> {
        let shutdown = Server::named(&self.local.server)?.shutdown;
        for (number, pid) in self.local.processes().into_iter().enumerate() {
            process::signal(pid, if number == 0 { shutdown } else { Signal::SIGTERM })?;
            process::wait_until("the shutdown", Duration::from_secs(60), || Ok(!process::is_alive(pid)))?;
        }
        Ok(())
    }

    /// Starts it again after [`stop`](Self::stop) or [`kill`](Self::kill), with the same data, and waits until it
    /// responds.
    ///
    /// # Errors
    /// It does not respond in time; the text contains its log.
    pub fn start_again(&mut self) -> Result<()> {
        self.local.start()?;
        self.watch()
    }

    /// Kills all its processes at once (SIGKILL).
    ///
    /// # Errors
    /// They still exist after half a minute.
    pub fn kill(&mut self) -> Result<()> {
        self.local.kill()
    }

    /// Freezes it (SIGSTOP), and waits until it is frozen: connections stay open, and nothing answers.
    ///
    /// # Errors
    /// The signal cannot be sent, or a thread still runs ten seconds later.
    pub fn pause(&mut self) -> Result<()> {
        let mut paused = Vec::new();
        // A process may fork while its siblings are being frozen; a frozen process cannot fork.
        loop {
            let new: Vec<i32> = self.local.tree().into_iter().filter(|pid| !paused.contains(pid)).collect();
            if new.is_empty() {
                // A thread runs on for a moment after the signal was sent.
                return process::wait_until("a pause", Duration::from_secs(10), || {
                    Ok(paused.iter().all(|pid| process::is_frozen(*pid)))
                });
            }
            new.iter().try_for_each(|pid| process::signal(*pid, Signal::SIGSTOP))?;
            paused.extend(new);
        }
    }

    /// Resumes a frozen server.
    ///
    /// # Errors
    /// The signal cannot be sent.
    pub fn resume(&mut self) -> Result<()> {
        self.local.tree().into_iter().try_for_each(|pid| process::signal(pid, Signal::SIGCONT))
    }

    /// Returns the main process, while it runs.
    pub fn pid(&self) -> Option<i32> {
        self.local.processes().first().copied()
    }

    /// Returns its directory.
    pub fn home(&self) -> &Path {
        &self.local.home
    }

    fn watch(&mut self) -> Result<()> {
        self.watcher = None;
        self.watcher = Some(Watcher::start(&self.local.home, &self.local.processes())?);
        Ok(())
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.watcher = None;
        // An error cannot be reported here; remaining files are under `target/services`.
        let _ = self.local.remove();
    }
}

/// A shell that waits for the end of this process and then ends what is left.
///
/// It reads from a pipe whose other end this process holds. The kernel closes that end when the process ends, even by
/// SIGKILL, when no destructor runs.
#[derive(Debug)]
pub(crate) struct Watcher(Child);

/// SIGCONT, because a frozen process handles no other signal; then ten seconds for PostgreSQL to end its backends. The
/// kernel may have given the number of a process that has ended to another one, which works elsewhere.
const END_PROCESSES: &str = r#"
home=$1; shift
ours() { for pid; do case $(readlink "/proc/$pid/cwd") in "$home" | "$home/"* | "$home "*) echo "$pid" ;; esac; done; }
kill -QUIT $(ours "$@"); kill -CONT $(ours "$@")
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -n "$(ours "$@")" ] || break; sleep 1; done
kill -KILL $(ours "$@"); rm -rf "$home"
"#;

impl Watcher {
    /// Ends these processes, if they work in this directory, and removes it when this process has ended.
    pub(crate) fn start(home: &Path, processes: &[i32]) -> Result<Self> {
        let mut shell = Command::new("sh");
        shell.arg("-c").arg(format!("read -r _\n{END_PROCESSES}")).arg("watcher").arg(home);
        shell.args(processes.iter().map(ToString::to_string));
        let shell = shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).process_group(0);
        Ok(Self(shell.spawn().context("cannot run sh")?))
    }
}

/// Cancels the watcher.
impl Drop for Watcher {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_processes_of_the_directory_are_ended() {
        let home = std::env::temp_dir().join(format!("idem-watcher-{}", std::process::id()));
        std::fs::create_dir_all(home.join("data")).unwrap();
        let sleep = |dir: &Path| Command::new("sleep").arg("600").current_dir(dir).spawn().unwrap();
        let (mut ours, mut other) = (sleep(&home.join("data")), sleep(&std::env::temp_dir()));
        let processes = [ours.id(), other.id()].map(|id| i32::try_from(id).unwrap());
        let mut watcher = Watcher::start(&home, &processes).unwrap();
        drop(watcher.0.stdin.take());
        assert!(!ours.wait().unwrap().success());
        watcher.0.wait().unwrap();
        assert!(other.try_wait().unwrap().is_none() && !home.exists());
        other.kill().unwrap();
        other.wait().unwrap();
    }
}
