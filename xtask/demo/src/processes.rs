//! The processes, and the private servers, which the demo may freeze, crash and restart.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use idem_brokers::Broker;
use idem_services::Instance;
use nix::sys::signal::Signal;
use nix::unistd::Pid;
use tokio::process::{Child, ChildStdin, Command};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use crate::campaign::Mode;
use crate::hold::Signals;
use crate::journal::{Reader, Sum};
use crate::worker::Role;

/// A worker process, or another one with a journal.
pub(crate) struct WorkerProcess {
    /// For example "worker 3".
    name: String,
    child: Child,
    input: Option<ChildStdin>,
    journal: Reader,
    log: PathBuf,
}

/// All processes of one kind, including dead ones.
pub(crate) struct Processes {
    /// What they do.
    kind: String,
    dir: PathBuf,
    /// The arguments of each, and the addresses of its servers.
    call: Vec<String>,
    env: [(&'static str, String); 2],
    alive: Vec<WorkerProcess>,
    pub(crate) signals: Signals,
    dead: Vec<Reader>,
    started: usize,
    /// The messages that ended a worker.
    pub(crate) killers: Vec<u64>,
    /// The workers that killed themselves since the last check: the amount of work in hand, and the message at whose
    /// ack they ended.
    pub(crate) ended: Vec<(u64, u64)>,
}

impl Processes {
    /// Creates the state without any process. The processes write to this directory, which is emptied.
    pub(crate) fn new<B: Broker>(role: Role, mode: Mode, dir: &Path, servers: &Servers) -> Result<Self> {
        let _ = std::fs::remove_dir_all(dir);
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let call = [B::NAME.to_owned(), format!("--role={}", role.name())].into_iter().chain(mode.args()).collect();
        let env = [(DATABASE, servers.database().to_owned()), (B::VARIABLE, servers.broker().to_owned())];
        Ok(Self {
            kind: role.name(),
            dir: dir.to_owned(),
            call,
            env,
            alive: Vec::new(),
            signals: Signals::new(dir),
            dead: Vec::new(),
            started: 0,
            killers: Vec::new(),
            ended: Vec::new(),
        })
    }

    /// Gives each process these arguments, too.
    pub(crate) fn give(&mut self, args: &[&str]) {
        self.call.extend(args.iter().map(ToString::to_string));
    }

    /// Starts a worker.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.started += 1;
        let name = format!("{} {}", self.kind, self.started);
        let file = |ending: &str| self.dir.join(format!("{}.{ending}", name.replace(' ', "-")));
        let (journal, log) = (file("journal"), file("log"));
        let mut command = Command::new(std::env::current_exe()?);
        command.args(&self.call).arg("--journal").arg(&journal).envs(self.env.iter().cloned()).kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&log)?);
        let mut child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let input = child.stdin.take();
        self.alive.push(WorkerProcess { name, child, input, journal: Reader::open(&journal)?, log });
        Ok(())
    }

    /// Reads what the workers have written, and starts another one for each that ended by a message or its failpoint.
    /// Fails if a worker has ended for another reason.
    pub(crate) fn look(&mut self) -> Result<()> {
        let mut place = 0;
        while let Some(process) = self.alive.get_mut(place) {
            let ended = process.child.try_wait()?;
            process.journal.read()?;
            match (ended, process.journal.sum.ends_itself()) {
                (None, _) => place += 1,
                (Some(status), true) if killed(status) => {
                    let process = self.alive.remove(place);
                    self.keep_journal(process);
                    self.start()?;
                }
                (Some(status), _) => {
                    bail!("{} ended by itself ({status}):\n{}", process.name, process.last_words())
                }
            }
        }
        Ok(())
    }

    /// Keeps the journal of a worker that has ended.
    fn keep_journal(&mut self, process: WorkerProcess) {
        let sum = &process.journal.sum;
        self.killers.extend(sum.killed_by);
        self.ended.extend(sum.ended_at.map(|id| (sum.in_hand(), id)));
        self.dead.push(process.journal);
    }

    /// Kills the worker at this place of `alive` while it has work in hand, and returns what it had written. The worker
    /// is stopped for the check: a worker that has just acked all its messages is briefly idle, and its death would
    /// prove nothing. A worker that stays idle is not killed.
    pub(crate) async fn kill(&mut self, place: usize) -> Result<Option<&Sum>> {
        let mut process = self.alive.remove(place);
        for _ in 0..200 {
            process.signal(Signal::SIGSTOP)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
            process.journal.read()?;
            if process.journal.sum.in_hand() > 0 {
                process.child.start_kill()?;
                return self.bury(process).await.map(Some);
            }
            process.signal(Signal::SIGCONT)?;
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.alive.push(process);
        Ok(None)
    }

    /// Waits for the end of a process that was killed.
    async fn bury(&mut self, mut process: WorkerProcess) -> Result<&Sum> {
        let status = timeout(Duration::from_secs(30), process.child.wait()).await;
        let status = status.with_context(|| format!("{} does not end", process.name))??;
        ensure!(killed(status), "{} was not killed ({status}):\n{}", process.name, process.last_words());
        process.journal.read()?;
        self.keep_journal(process);
        self.dead.last().map(|journal| &journal.sum).context("there is one")
    }

    /// Lets the worker at this place finish its work and end. Returns whether it did, rather than being ended by a
    /// message or its failpoint.
    pub(crate) async fn let_go(&mut self, place: usize) -> Result<bool> {
        let mut process = self.alive.remove(place);
        drop(process.input.take());
        let status = timeout(Duration::from_secs(60), process.child.wait()).await;
        let status = status.with_context(|| format!("{} does not drain", process.name))??;
        process.journal.read()?;
        let left = status.success();
        let by_itself = killed(status) && process.journal.sum.ends_itself();
        ensure!(left || by_itself, "{} failed ({status}):\n{}", process.name, process.last_words());
        self.keep_journal(process);
        Ok(left)
    }

    /// Lets all workers finish and end.
    pub(crate) async fn dismiss(&mut self) -> Result<()> {
        self.alive.iter_mut().for_each(|process| drop(process.input.take()));
        while !self.alive.is_empty() {
            let _ = self.let_go(0).await?;
        }
        Ok(())
    }

    /// Returns what each process has written, dead or alive.
    pub(crate) fn sums(&self) -> impl Iterator<Item = &Sum> {
        self.dead.iter().chain(self.alive.iter().map(|process| &process.journal)).map(|journal| &journal.sum)
    }

    /// Returns whether this message ran in a process that ended before the outcome was written.
    pub(crate) fn died_with(&self, id: u64) -> bool {
        self.dead.iter().any(|journal| journal.sum.is_unwritten(id))
    }

    /// Returns the places of the workers that have work in hand.
    pub(crate) fn busy(&self) -> Vec<usize> {
        let busy = |process: &WorkerProcess| process.journal.sum.in_hand() > 0;
        self.alive.iter().enumerate().filter(|(_, process)| busy(process)).map(|(place, _)| place).collect()
    }
}

impl WorkerProcess {
    fn signal(&self, signal: Signal) -> Result<()> {
        let id = self.child.id().with_context(|| format!("{} has ended by itself", self.name))?;
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

/// The demo's private servers.
#[derive(Debug)]
pub(crate) struct Servers {
    database: Instance,
    broker: Instance,
}

/// The environment variable with the database's address; that of the broker is [`Broker::VARIABLE`].
pub(crate) const DATABASE: &str = "DATABASE_URL";

impl Servers {
    /// Starts the servers.
    pub(crate) async fn start<B: Broker>() -> Result<Self> {
        let start = || anyhow::Ok(Self { broker: (B::START)()?, database: idem_services::Postgres::start()? });
        spawn_blocking(start).await?
    }

    pub(crate) fn database(&self) -> &str {
        self.database.url()
    }

    pub(crate) fn broker(&self) -> &str {
        self.broker.url()
    }

    /// Freezes the database for this long.
    pub(crate) async fn freeze(&mut self, time: std::time::Duration) -> Result<()> {
        tokio::task::block_in_place(|| self.database.pause())?;
        tokio::time::sleep(time).await;
        tokio::task::block_in_place(|| self.database.resume())
    }

    /// Shuts the broker down cleanly, and starts it again with its data.
    pub(crate) fn restart_broker(&mut self) -> Result<()> {
        tokio::task::block_in_place(|| {
            self.broker.stop()?;
            self.broker.start_again()
        })
        .context("the broker was not restarted")
    }
}
