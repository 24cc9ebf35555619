//! The worker processes.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};
use tokio::time::timeout;

use crate::hold::Signals;
use crate::journal::{Reader, Sum};

/// A worker process.
pub(crate) struct Member {
    number: usize,
    child: Child,
    input: Option<ChildStdin>,
    journal: Reader,
    log: PathBuf,
}

/// All worker processes, including dead ones.
pub(crate) struct Crew {
    dir: PathBuf,
    /// The arguments of a worker, and the addresses of its servers.
    call: Vec<String>,
    env: Vec<(&'static str, String)>,
    pub(crate) alive: Vec<Member>,
    pub(crate) signals: Signals,
    dead: Vec<Reader>,
    started: usize,
    /// The messages that ended a worker.
    pub(crate) killers: Vec<u64>,
    /// The workers that killed themselves since the last check: the amount of work in hand, and the message at whose
    /// ack they ended.
    pub(crate) ended: Vec<(u64, u64)>,
}

impl Crew {
    /// Creates a crew without workers. They write to this directory, which is emptied.
    pub(crate) fn new(dir: &Path, call: Vec<String>, env: Vec<(&'static str, String)>) -> Result<Self> {
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        Ok(Self {
            dir: dir.to_owned(),
            call,
            alive: Vec::new(),
            signals: Signals::new(dir),
            env,
            dead: Vec::new(),
            started: 0,
            killers: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Starts a worker.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.started += 1;
        let file = |ending: &str| self.dir.join(format!("worker-{}.{ending}", self.started));
        let (journal, log) = (file("journal"), file("log"));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.call).arg("--journal").arg(&journal).envs(self.env.iter().cloned()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let mut child = command.spawn().context("cannot start a worker")?;
        let input = child.stdin.take();
        self.alive.push(Member { number: self.started, child, input, journal: Reader::open(&journal)?, log });
        Ok(())
    }

    /// Reads what the workers have written, and starts another one for each that ended by a message or its failpoint.
    /// Fails if a worker has ended for another reason.
    pub(crate) fn look(&mut self) -> Result<()> {
        let mut place = 0;
        while let Some(member) = self.alive.get_mut(place) {
            let ended = member.child.try_wait()?;
            member.journal.read()?;
            match (ended, member.journal.sum.ends_itself()) {
                (None, _) => place += 1,
                (Some(status), true) if killed(status) => {
                    let member = self.alive.remove(place);
                    self.bury(member);
                    self.start()?;
                }
                (Some(status), _) => {
                    bail!("worker {} ended by itself ({status}):\n{}", member.number, member.last_words())
                }
            }
        }
        Ok(())
    }

    /// Keeps the journal of a worker that has ended.
    fn bury(&mut self, member: Member) {
        let sum = &member.journal.sum;
        self.killers.extend(sum.killed_by);
        self.ended.extend(sum.ended_at.map(|id| (sum.in_hand(), id)));
        self.dead.push(member.journal);
    }

    /// Kills the worker at this place of `alive` while it has work in hand, and returns what it had written. The worker
    /// is stopped for the check: a worker that has just acked all its messages is briefly idle, and its death would
    /// prove nothing. A worker that stays idle is not killed.
    pub(crate) async fn kill(&mut self, place: usize) -> Result<Option<&Sum>> {
        let mut member = self.alive.remove(place);
        for _ in 0..200 {
            member.signal(Signal::SIGSTOP)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            member.journal.read()?;
            if member.journal.sum.in_hand() > 0 {
                let kill = |member: &mut Member| member.child.start_kill().map_err(Into::into);
                return self.end(member, kill).await.map(Some);
            }
            member.signal(Signal::SIGCONT)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.alive.push(member);
        Ok(None)
    }

    async fn end(&mut self, mut member: Member, kill: impl FnOnce(&mut Member) -> Result<()>) -> Result<&Sum> {
        kill(&mut member)?;
        let status = timeout(Duration::from_secs(30), member.child.wait()).await;
        let status = status.with_context(|| format!("worker {} does not end", member.number))??;
        ensure!(killed(status), "worker {} was not killed ({status}):\n{}", member.number, member.last_words());
        member.journal.read()?;
        self.bury(member);
        self.dead.last().map(|journal| &journal.sum).context("there is one")
    }

    /// Lets the worker at this place finish its work and end. Returns whether it did, rather than being ended by a
    /// message or its failpoint.
    pub(crate) async fn let_go(&mut self, place: usize) -> Result<bool> {
        let mut member = self.alive.remove(place);
        drop(member.input.take());
        let status = timeout(Duration::from_secs(60), member.child.wait()).await;
        let status = status.with_context(|| format!("worker {} does not drain", member.number))??;
        member.journal.read()?;
        let left = status.success();
        let by_itself = killed(status) && member.journal.sum.ends_itself();
        ensure!(left || by_itself, "worker {} failed ({status}):\n{}", member.number, member.last_words());
        self.bury(member);
        Ok(left)
    }

    /// Lets all workers finish and end.
    pub(crate) async fn dismiss(&mut self) -> Result<()> {
        self.alive.iter_mut().for_each(|member| drop(member.input.take()));
        while !self.alive.is_empty() {
            let _ = self.let_go(0).await?;
        }
        Ok(())
    }

    /// Returns what each process has written, dead or alive.
    pub(crate) fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.dead.iter().chain(self.alive.iter().map(|member| &member.journal)).map(|journal| &journal.sum)
    }

    /// Returns whether this message ran in a process that ended before the outcome was written.
    pub(crate) fn died_with(&self, id: u64) -> bool {
        self.dead.iter().any(|journal| journal.sum.is_unwritten(id))
    }

    /// Returns the places of the workers that have work in hand.
    pub(crate) fn busy(&self) -> Vec<usize> {
        let busy = |member: &Member| member.journal.sum.in_hand() > 0;
        self.alive.iter().enumerate().filter(|(_, member)| busy(member)).map(|(place, _)| place).collect()
    }
}

impl Member {
    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().with_context(|| format!("worker {} has ended by itself", self.number))?;
        Ok(nix::sys::signal::kill(Pid::from_raw(i32::try_from(id)?), signal)?)
    }

    /// Returns the last lines of its log.
    fn last_words(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<&str> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }
}

fn killed(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(Signal::SIGKILL as i32)
}
