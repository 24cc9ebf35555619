//! The answers to the statements of a relay, and what they mean for its messages and its lease.

use tokio::time::Instant;

use crate::Store;
use crate::outbox::Sink;
use crate::runtime::jittered;
use crate::store::{LeaseAnswer, OutboxFound, OutboxRead, PublishFailure, RowRef, StoreError};

use super::tenure::{AGAIN, End, Tenure};

/// The end of a statement.
pub(super) enum Done {
    Read { read: OutboxRead, began: Instant, found: Result<OutboxFound, StoreError> },
    Deleted { rows: Vec<RowRef>, deleted: Result<u64, StoreError> },
    Recorded { failures: Vec<PublishFailure>, recorded: Result<(), StoreError> },
    Leased { began: Instant, answer: Result<LeaseAnswer, StoreError> },
}

impl<S: Store, K: Sink> Tenure<'_, S, K> {
    /// Applies the end of a statement.
    pub(super) fn apply(&mut self, done: Done) {
        let now = Instant::now();
        match done {
            Done::Read { read, began, found } => self.read_ended(read, began, found),
            Done::Deleted { rows, deleted } => match self.answered_by_database("delete published messages", deleted) {
                Some(deleted) => {
                    self.next.delete = Some(now);
                    if deleted < rows.len() as u64 {
                        // The lease may be lost, or the ids may have been given again.
                        self.next.renew = self.next.renew.map(|_| now);
                        self.low_water.failed();
                    }
                    let is_repeated = std::mem::take(&mut self.is_repeated);
                    if deleted == 0 && !is_repeated {
                        // If the lease is not lost, they are read and published again: not at full speed, since nothing is read
                        // again before the relay has tried to delete it.
                        self.next.delete = Some(self.again());
                        tracing::warn!(
                            "the database has deleted none of the published messages: unless another relay has taken the lease, they \
                             are published again, so see to it that no trigger and no row-level security keeps the relay from \
                             deleting in outbox_messages"
                        );
                    }
                    rows.into_iter().for_each(|row| self.queue.remove(row.id));
                }
                None => {
                    self.confirmed.extend(rows);
                    self.is_repeated = true;
                    self.next.delete = Some(self.again());
                }
            },
            Done::Recorded { failures, recorded } => {
                match self.answered_by_database("record refused messages", recorded) {
                    Some(()) => {
                        self.next.record = Some(now);
                        failures.into_iter().for_each(|failure| self.recorded(failure, now));
                    }
                    None => {
                        self.failures.extend(failures);
                        self.next.record = Some(self.again());
                    }
                }
            }
            Done::Leased { began, answer } => {
                self.next.renew = Some(self.again());
                match self.answered_by_database("renew its lease", answer) {
                    Some(LeaseAnswer::Held) => self.leased(began),
                    Some(LeaseAnswer::Other) => self.end = Some(End::Lost),
                    Some(LeaseAnswer::Unknown) => self.end = Some(End::Replaced),
                    None => {}
                }
            }
        }
    }

    fn recorded(&mut self, PublishFailure { row, next, .. }: PublishFailure, now: Instant) {
        match next {
            Some(due) => self.queue.park_refused(row.id, now, due),
            None => {
                let next = self.queue.forget(row.id);
                self.enqueue(next);
            }
        }
    }

    /// Logs a failure of the database, and reports it to the health. A server that has failed over may have lost what was read.
    pub(super) fn answered_by_database<T>(&mut self, what: &str, answer: Result<T, StoreError>) -> Option<T> {
        self.relay.health.set_database(answer.is_ok());
        let answer = answer.inspect_err(|fault| {
            self.low_water.failed();
            let error = crate::error::text(fault);
            tracing::warn!(error, "the relay could not {what}; it tries again");
        });
        answer.ok()
    }

    /// When a statement that has failed is tried again.
    pub(super) fn again(&self) -> Instant {
        Instant::now() + jittered(AGAIN.min(self.relay.settings.lease / 10))
    }
}
