//! The leases of a process in a trial that crashes everywhere.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use idem_core::store::{OutboxId, Row};
use uuid::Uuid;

use super::subject::Subject;

/// The lease of a call.
const SHORT: Duration = Duration::from_millis(1);

/// The leases of a process. A lease is as long as it is because nobody sees when the process that has it ends. The trial sees
/// that: it starts the next process when the one before is gone, with the calls that it had begun. So the next one does not
/// have to wait for them.
///
/// The lease of a call is over almost at once, also while the call goes on. So that no process calls twice at a time, it takes
/// nothing before its call has ended. A relay needs its lanes to publish; they are given back when the process is dead.
#[derive(Debug)]
pub(super) struct Leases {
    subject: Arc<Subject>,
    is_calling: AtomicBool,
    /// The lanes that a relay of this process may have.
    lanes: Mutex<Option<(OutboxId, Uuid)>>,
}

impl Leases {
    pub(super) fn new(subject: Arc<Subject>) -> Self {
        Self { subject, is_calling: AtomicBool::new(false), lanes: Mutex::default() }
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Returns whether a message may be taken for its call.
    pub(super) fn may_call(&self) -> bool {
        !self.is_calling.load(SeqCst)
    }

    /// Returns the lease for which a message is taken for its call.
    pub(super) fn of_call() -> Duration {
        SHORT
    }

    /// A row was taken for its call. The worker sees the lease that it has asked for: it computes from it how old the key is.
    /// It also sees a call without a key as old enough to ask the provider about it. That time is for requests which a network
    /// holds back; what a process of the trial has sent has arrived.
    pub(super) fn taken(&self, row: &mut Row, asked: Duration) {
        self.is_calling.store(true, SeqCst);
        row.due_at += asked.saturating_sub(SHORT);
        if let Some(after) = self.subject.asks_after(&row.handler)
            && !row.is_first_call
        {
            row.called_at = row.called_at.and_then(|at| at.checked_sub(after));
        }
    }

    /// A call of this process has ended.
    pub(super) fn call_has_ended(&self) {
        self.is_calling.store(false, SeqCst);
    }

    /// A relay of this process takes or renews lanes.
    pub(super) fn holds(&self, outbox: OutboxId, token: Uuid) {
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner) = Some((outbox, token));
    }

    /// Returns the outbox of the relay, and the token of its lanes.
    pub(super) fn lanes(&self) -> Option<(OutboxId, Uuid)> {
        *self.lanes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
