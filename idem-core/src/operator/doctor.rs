//! What is wrong with the setup: workers, relays, clocks, retention, and the database's housekeeping.

use std::fmt;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use crate::age::shown;
use crate::store::{KnownHandler, Remedies};
use crate::{Error, Store};

use super::{Count, Operator, Time, WorkerRow, ago, full_name, questions};

/// Something that is wrong, or needs a person.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// A sentence.
    pub what: String,
    /// What to do; in a [status](super::Status), the command that shows more.
    pub remedy: String,
}

impl Finding {
    pub(super) fn new(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { what: what.into(), remedy: remedy.into() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.remedy)
    }
}

/// A table of idem that autovacuum is behind with, as PostgreSQL answers, and its number of dead rows.
#[derive(Deserialize)]
struct Table {
    table: String,
    dead: u64,
}

/// For how long a worker may not have been seen: each writes the time every minute.
const UNSEEN: Duration = Duration::from_secs(120);

/// From which difference on two clocks are not the same.
const SKEW: Duration = Duration::from_secs(1);

impl<S: Store> Operator<S> {
    /// Looks for what is wrong with the setup. Returns nothing if all is well. `start`: the error of an ordinary `connect` with
    /// `verify_only`, which has the checks of the start. [`Error::Denied`] is left out: this role need not be that of a worker, which
    /// says at its start what its own role lacks.
    ///
    /// # Errors
    /// None: a database that cannot be used, and a role that may not read, are findings as well.
    pub async fn doctor(&self, start: Option<Error>) -> Result<Vec<Finding>, Error> {
        let refused = |error: Error| Finding::new(format!("a worker could not start: {error}"), "do what it says");
        let start = start.filter(|error| !matches!(error, Error::Denied { .. }));
        let mut findings: Vec<Finding> = start.map(refused).into_iter().collect();
        if let Err(error) = self.examine(&mut findings).await {
            let remedy = "connect to the right database, as a role that may read idem's tables (idem roles --print)";
            findings.push(Finding::new(error.to_string(), remedy));
        }
        Ok(findings)
    }

    async fn examine(&self, findings: &mut Vec<Finding>) -> Result<(), Error> {
        findings.extend(self.clock_skew().await?);
        let (known, workers) = (self.handlers().await?, self.workers().await?);
        let unseen = known.iter().filter(|handler| handler.has_rows && handler.seen > UNSEEN);
        findings.extend(unseen.map(|handler| {
            let mut workers =
                workers.iter().filter(|worker| worker.kind == "worker" && worker.name == handler.consumer);
            match workers.any(|worker| worker.alive) {
                true => self.without_handler(handler),
                false => without_worker(handler),
            }
        }));
        for outbox in self.outboxes(Count::AtLeast).await? {
            let remedy = format!("run `Relay::new({:?}, ..)`, or correct the name", outbox.name);
            findings.extend(outbox.unread().map(|what| Finding::new(what, remedy)));
        }
        let alive = workers.iter().filter(|worker| worker.alive && worker.kind == "worker");
        findings.extend(alive.filter_map(|worker| forgets_too_early(worker, &known)));
        for Table { table, dead } in self.ask(&questions::vacuum(), &[]).await? {
            let what = format!("autovacuum is behind: {table} has {dead} dead rows");
            findings.push(Finding::new(what, "look at autovacuum's log and workers, and at old transactions"));
        }
        findings.dedup();
        Ok(())
    }

    /// Compares the clocks of this machine and of the database, which is asked in between.
    async fn clock_skew(&self) -> Result<Option<Finding>, Error> {
        let before = SystemTime::now();
        let clock: Vec<Time> = self.ask(&questions::clock(), &[]).await?;
        let after = SystemTime::now();
        let skew = clock.into_iter().next().and_then(|now| {
            before.duration_since(now.0).or_else(|_| now.0.duration_since(after)).ok().filter(|skew| *skew >= SKEW)
        });
        Ok(skew.map(|skew| {
            let what = format!("the clocks of this machine and of the database differ by {}", ago(skew));
            Finding::new(what, "synchronize both (NTP): a message is too old by the broker's clock and the database's")
        }))
    }

    /// A handler with messages in the inbox that the workers of its consumer do not have.
    fn without_handler(&self, handler: &KnownHandler) -> Finding {
        let (name, seen) = (full_name(handler), ago(handler.seen));
        let remedies = Remedies::of(&self.store, &handler.consumer, &handler.name, "");
        Finding::new(
            format!("messages of {name} are in the inbox, and no worker has had this handler for {seen}"),
            format!(
                "start a worker that has it, with `formerly = ..` if it has another name now. If it is gone for good, make its \
                 scheduled messages dead letters, and discard them: {}",
                remedies.dead_letter
            ),
        )
    }
}

/// A consumer with messages in the inbox, and without a worker: one finding for all its handlers.
fn without_worker(handler: &KnownHandler) -> Finding {
    let consumer = &handler.consumer;
    Finding::new(
        format!("messages of {consumer} are in the inbox, and no worker of it is alive"),
        "start its service again: idem workers says where it ran",
    )
}

/// Compares how long claims are kept with how long the broker of a worker may deliver a message again.
fn forgets_too_early(worker: &WorkerRow, known: &[KnownHandler]) -> Option<Finding> {
    let of = known.iter().filter(|handler| handler.consumer == worker.name && handler.has_processed);
    let kept = of.filter_map(|handler| handler.retention).min()?;
    let window = worker.report.window.map(Duration::from_secs).filter(|window| *window > kept)?;
    let again =
        if window == Duration::from_secs(u64::MAX) { "without a limit of time".to_owned() } else { shown(window) };
    let (consumer, kept) = (&worker.name, shown(kept));
    Some(Finding::new(
        format!("claims of {consumer} are kept for {kept}, and its broker may deliver a message again for {again}"),
        "raise `.retention(..)` of the store, or lower the broker's",
    ))
}
