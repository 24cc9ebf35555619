//! The leases of a process in a trial that crashes everywhere.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
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
/// The lease of a call is over almost at once, also while the call goes on. So that no process calls twice for a message, it
/// fetches nothing before its calls have ended. A relay needs its lease to publish; it is released when the process is dead.
#[derive(Debug)]
pub(super) struct Leases {
    subject: Arc<Subject>,
    /// How many rows are fetched for their calls.
    calling: AtomicUsize,
    /// The lease that a relay of this process may have.
    relay: Mutex<Option<(OutboxId, Uuid)>>,
}

impl Leases {
    pub(super) fn new(subject: Arc<Subject>) -> Self {
        Self { subject, calling: AtomicUsize::new(0), relay: Mutex::default() }
    }

    pub(super) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Returns whether a message may be fetched for its call.
    pub(super) fn may_call(&self) -> bool {
        self.calling.load(SeqCst) == 0
    }

    /// Returns the lease for which a message is fetched for its call.
    pub(super) fn of_call() -> Duration {
        SHORT
    }

    /// A row was fetched for its call. The worker sees the lease that it has asked for: it computes from it how old the key is.
    /// It also sees a call without a key as old enough to ask the provider about it. That time is for requests that a network
    /// holds back; those of a process of the trial have arrived.
    pub(super) fn fetched(&self, row: &mut Row, asked: Duration) {
        self.calling.fetch_add(1, SeqCst);
        row.locked_until = row.locked_until.map(|end| end + asked.saturating_sub(SHORT));
        if let Some(after) = self.subject.asks_after(&row.handler)
            && !row.is_first_call
        {
            row.called_at = row.called_at.and_then(|at| at.checked_sub(after));
        }
    }

    /// A call of this process has ended.
    pub(super) fn call_has_ended(&self) {
        // A result may be recorded again, after a lost answer.
        let _ = self.calling.fetch_update(SeqCst, SeqCst, |calling| calling.checked_sub(1));
    }

    /// A relay of this process takes or renews its lease.
    pub(super) fn holds(&self, outbox: OutboxId, token: Uuid) {
        *self.relay.lock().unwrap_or_else(PoisonError::into_inner) = Some((outbox, token));
    }

    /// Returns the outbox of the relay, and the token of its lease.
    pub(super) fn relay(&self) -> Option<(OutboxId, Uuid)> {
        *self.relay.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use idem_core::store::{HandlerId, Identity};
    use idem_core::{Delivery, Fingerprint, Key};

    use super::*;

    /// Two handlers of local messages, for example, which one message starts.
    #[test]
    fn a_process_fetches_no_message_for_a_call_before_each_of_its_calls_has_ended() {
        let leases = Leases::new(Arc::default());
        for id in [1, 2] {
            let key = Key::of("a").unwrap();
            let identity = Identity { handler: HandlerId(1), key, fingerprint: Fingerprint::of(b"a") };
            let delivery = Delivery::new("orders", "a");
            let mut row = Row::new(id, identity, "pays".to_owned(), delivery, SystemTime::UNIX_EPOCH);
            leases.fetched(&mut row, Duration::from_secs(10));
        }
        leases.call_has_ended();
        assert!(!leases.may_call(), "the other one goes on");
        leases.call_has_ended();
        leases.call_has_ended();
        assert!(leases.may_call());
    }
}
