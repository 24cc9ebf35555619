//! A worker in a separate process.

use std::fs::File;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use idem_brokers::Broker;
use serde::{Deserialize, Serialize};
use tokio::process::{Child, Command};

use crate::{Mode, Site, World, fresh, until, within};

/// The settings of a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Setting {
    /// [`Broker::NAME`](idem_brokers::Broker::NAME).
    pub broker: String,
    /// The address of the broker.
    pub address: String,
    /// The queue, stream or topic.
    pub name: String,
    /// The URL of the database.
    pub database: String,
    /// The schema of the test.
    pub schema: String,
    /// The mode of the worker.
    pub mode: Mode,
    /// The folder into which it writes the trace of its steps; empty: it writes none.
    pub traces: String,
}

/// The environment variable that passes the settings, as JSON.
const VARIABLE: &str = "FAULTS_SETTING";

impl Setting {
    /// The settings of a worker at this site.
    pub fn of<B: Broker>(world: &World, site: &Site<B>, mode: Mode) -> Self {
        Self {
            broker: B::NAME.to_owned(),
            address: site.address.clone(),
            name: site.name.clone(),
            database: world.stage.url().to_owned(),
            schema: world.schema.clone(),
            mode,
            traces: String::new(),
        }
    }

    /// Reads the settings of this process.
    pub fn from_env() -> Self {
        serde_json::from_str(&std::env::var(VARIABLE).unwrap()).unwrap()
    }
}

/// A worker in a separate process, which is killed on drop.
pub struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts the program `worker` of this package.
    pub fn start(program: &str, setting: &Setting) -> Self {
        let log = std::env::temp_dir().join(format!("{}.log", fresh("idem-faults")));
        let mut command = Command::new(program);
        command.env(VARIABLE, serde_json::to_string(setting).unwrap());
        command.stdin(Stdio::null()).stderr(File::create(&log).unwrap());
        Self { child: command.kill_on_drop(true).spawn().unwrap(), log }
    }

    /// Waits until its worker has started. A signal that asks it to end ends it by itself before that.
    pub async fn started(&mut self) {
        until("the worker has started", || {
            self.runs();
            std::future::ready(self.log().contains("the worker has started"))
        })
        .await;
    }

    /// Waits until it ends.
    pub async fn ended(&mut self) -> ExitStatus {
        self.child.wait().await.unwrap()
    }

    /// Ends it with SIGKILL.
    pub async fn kill(mut self) {
        within("the process is gone", self.child.kill()).await.unwrap();
    }

    /// Asks it to end with SIGINT, as ctrl-c does, and waits until it has. It must have [started](Self::started).
    pub async fn interrupt(mut self) {
        let pid = self.child.id().unwrap().to_string();
        assert!(Command::new("kill").args(["-INT", &pid]).status().await.unwrap().success());
        let status = within("the process is gone", self.child.wait()).await.unwrap();
        assert!(status.success(), "{status:?}\n{}", self.log());
    }

    /// Asserts that it still runs.
    pub fn runs(&mut self) {
        let status = self.child.try_wait().unwrap();
        assert!(status.is_none(), "the worker ended: {status:?}\n{}", self.log());
    }

    /// The processor time used by the process, in user and kernel mode (proc(5), `/proc/pid/stat`).
    pub fn processor_time(&self) -> Duration {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id().unwrap())).unwrap();
        // The second field is the name in parentheses; utime and stime are fields 14 and 15.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
        let ticks: u64 = fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap();
        // Linux uses 100 ticks per second on all current platforms.
        Duration::from_millis(ticks * 10)
    }

    /// The log output of the process.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.log);
    }
}
