//! The faults of servers, and when they occur.

use std::time::Duration;

use anyhow::{Result, ensure};
use sqlx::{Connection, PgConnection};

use crate::due::Due;
use crate::servers::Servers;

/// A fault of a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The database does not respond for a while, and its connections stay open.
    Freeze,
    /// A process of the database is killed; the database then ends all others and recovers.
    Crash,
    /// The broker is shut down cleanly and restarted.
    Restart,
}

/// How long the database is frozen: longer than the handler timeout and than a lease.
const FROZEN: Duration = Duration::from_secs(4);

/// The planned and completed faults.
#[derive(Debug)]
pub(crate) struct Faults {
    /// The number of processed messages after which each fault is due; the last fault first.
    planned: Vec<(u64, Fault)>,
    pub(crate) done: Vec<Fault>,
}

impl Faults {
    /// Plans these faults, in turn, while there is work.
    pub(crate) fn new(faults: &[Fault], effects: u64) -> Self {
        let count = faults.len() as u64;
        let moment = |turn: u64| effects * (turn + 1) * 3 / (4 * (count + 1));
        Self {
            planned: (0..).map(moment).zip(faults.iter().copied()).collect::<Vec<_>>().into_iter().rev().collect(),
            done: Vec::new(),
        }
    }

    /// Returns the number of planned faults.
    pub(crate) fn outstanding(&self) -> usize {
        self.planned.len()
    }

    /// Injects the next fault if it is due, and returns it.
    pub(crate) async fn strike(&mut self, servers: &mut Servers, due: Due) -> Result<Option<Fault>> {
        let Some(&(_, fault)) = self.planned.last().filter(|(moment, _)| due.is(*moment)) else { return Ok(None) };
        match fault {
            Fault::Freeze => servers.freeze(FROZEN).await?,
            Fault::Crash => crash(servers.database()).await?,
            Fault::Restart => servers.restart_broker()?,
        }
        self.planned.pop();
        self.done.push(fault);
        Ok(Some(fault))
    }
}

/// Kills the server process of a new connection, as the kernel's out-of-memory killer does. The server starts the
/// program as a child of that process (PostgreSQL manual, COPY), so this works in a container as well.
async fn crash(database: &str) -> Result<()> {
    let mut connection = PgConnection::connect(database).await?;
    let killed = sqlx::raw_sql("COPY (SELECT 1) TO PROGRAM 'kill -9 $PPID'").execute(&mut connection).await;
    ensure!(killed.is_err(), "a process of the database was to be killed, and answers");
    Ok(())
}
