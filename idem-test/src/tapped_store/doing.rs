//! What an open transaction has written, for the trace of its process.

use idem_core::Reason;
use idem_core::store::{CommitResult, Identity, NewRow, StoreError, TxnOutcome};

use crate::trace::{ProcessTrace, Step, Subject};

/// A transaction that holds a claim, which is inserted dated.
pub(super) const OF_CLAIM: &str = "of=claim";
/// A transaction that has started a row.
pub(super) const OF_ROW: &str = "of=row";

/// What an open transaction has written. If it is dropped, the transaction is rolled back at some later time.
#[derive(Debug)]
pub(super) struct Doing {
    process: Option<ProcessTrace>,
    /// The messages whose handlers run in it, with the kind of the transaction.
    runs: Vec<(Subject, &'static str)>,
    /// The rows that it has inserted: the name of the step, the message, and the values.
    rows: Vec<(&'static str, Subject, String)>,
}

/// The steps that the end of a transaction takes.
pub(super) struct Ending {
    runs: Vec<Step>,
    rows: Vec<Step>,
}

impl Doing {
    pub(super) fn new(process: Option<&ProcessTrace>) -> Self {
        Self { process: process.cloned(), runs: Vec::new(), rows: Vec::new() }
    }

    /// Ends the step that was to insert a claim or to start a row. If it has, the handler of the message runs here.
    pub(super) fn begun(&mut self, step: Option<Step>, identity: &Identity, of: &'static str, has: bool) {
        match step {
            Some(step) if has => step.done(),
            Some(step) => return step.nothing(),
            None => return,
        }
        self.runs.extend(Subject::of(identity).map(|subject| (subject, of)));
    }

    /// A row was inserted.
    pub(super) fn inserted(&mut self, row: &NewRow<'_>) {
        let Some(subject) = Subject::of(row.identity) else { return };
        let dead = if row.state.is_err() { "yes" } else { "no" };
        let (step, values) = match (row.attempts, row.state) {
            (_, Err(Reason::Conflict)) => ("conflict", String::new()),
            (_, Err(Reason::TooOld)) => ("too-old", String::new()),
            (_, Err(Reason::Committed)) => ("dead-committed", String::new()),
            (0, Ok(_)) => ("stored", String::new()),
            (0, Err(_)) => ("rejected", String::new()),
            (attempts, _) => ("failed", format!("attempts={attempts} dead={dead}")),
        };
        self.rows.push((step, subject, values));
    }

    /// The commit begins.
    pub(super) fn commits(self) -> Ending {
        self.ends("committed")
    }

    /// The rollback begins.
    pub(super) fn rolls_back(mut self) -> Ending {
        self.rows.clear();
        self.ends("rolled-back")
    }

    fn ends(mut self, step: &'static str) -> Ending {
        let (runs, rows) = (std::mem::take(&mut self.runs), std::mem::take(&mut self.rows));
        let Some(process) = &self.process else { return Ending { runs: Vec::new(), rows: Vec::new() } };
        let runs = runs.into_iter().map(|(of, kind)| process.begin(step, of, kind.to_owned())).collect();
        let rows = rows.into_iter().map(|(step, of, values)| process.begin(step, of, values)).collect();
        Ending { runs, rows }
    }
}

impl Drop for Doing {
    fn drop(&mut self) {
        let Some(process) = &self.process else { return };
        for (of, kind) in self.runs.drain(..) {
            // It has no answer.
            drop(process.begin("rolled-back", of, kind.to_owned()));
        }
    }
}

impl Ending {
    /// The answer of the commit is there.
    pub(super) fn committed(self, result: &CommitResult) {
        let ended = match result {
            CommitResult::Done => {
                return self.runs.into_iter().chain(self.rows).for_each(Step::done);
            }
            CommitResult::Unknown(_) | CommitResult::NotSent(..) => return,
            CommitResult::CommittedEarly(_) => "ended-by-handler",
            _ => "rolled-back",
        };
        self.runs.into_iter().for_each(|step| step.done_as(ended));
        self.rows.into_iter().for_each(Step::nothing);
    }

    /// The answer of the rollback is there.
    pub(super) fn rolled_back(self, result: &Result<TxnOutcome, StoreError>) {
        match result {
            Ok(TxnOutcome::CommittedEarly) => {
                self.runs.into_iter().for_each(|step| step.done_as("ended-by-handler"));
            }
            Ok(_) => self.runs.into_iter().for_each(Step::done),
            Err(_) => {}
        }
    }
}
