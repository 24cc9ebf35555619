//! The work that runs in a worker, and when suspects do not wait for it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use slab::Slab;

use super::suspect_lock::{Direct, InboxPermit, Isolated, SuspectLock, Turn};

/// The work that runs in a worker: deliveries, batches, rows, external calls and a suspect.
///
/// Each piece of work has a permit until its outcome is written, so that no suspect can end the process before that. While
/// the database is unavailable no outcome can be written, and a suspect of another database would wait for as long as the
/// outage. So work then has its permit only while its user code runs. Without a permit, it goes on to write its outcome.
/// It runs more user code only if it gets a permit at once, and is put off if a suspect runs or waits. When the database is
/// available again, work has a permit again unless a suspect runs or waits.
#[derive(Debug)]
pub(super) struct Workload {
    lock: SuspectLock,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    is_unavailable: bool,
    /// By index, and not in a map: each delivery is added and removed, which a map would hash each time. An index is used again.
    works: Slab<Work>,
}

#[derive(Debug)]
struct Work {
    permit: Option<Permit>,
    /// Acquires another permit, if there is one at once.
    another: fn(&SuspectLock) -> Option<Permit>,
    /// How many handlers, codecs and calls run.
    user_code: usize,
}

/// The part of the suspect lock that a piece of work has.
#[derive(Debug)]
pub(crate) enum Permit {
    #[expect(dead_code, reason = "it only has to be dropped")]
    Direct(Direct),
    #[expect(dead_code, reason = "it only has to be dropped")]
    Inbox(InboxPermit),
    /// The isolation of a suspect may end before its turn.
    Suspect(Turn, Option<Isolated>),
}

/// A piece of work, which runs until this is dropped.
#[must_use]
pub(crate) struct Running<'a> {
    workload: &'a Workload,
    /// Its index, which no other piece of work has until it ends.
    id: usize,
}

/// User code of a piece of work, which runs until this is dropped. No suspect runs beside it.
#[must_use]
pub(crate) struct UserCode<'a>(&'a Running<'a>);

impl Workload {
    pub(super) fn new(lock: SuspectLock) -> Self {
        Self { lock, state: Mutex::default() }
    }

    /// Adds a piece of work.
    pub(super) fn run(&self, permit: Permit) -> Running<'_> {
        let another: fn(&SuspectLock) -> Option<Permit> = match permit {
            Permit::Direct(_) => |lock| lock.try_direct().map(Permit::Direct),
            Permit::Inbox(_) => |lock| lock.try_inbox().map(Permit::Inbox),
            // It would have to wait until it is isolated again.
            Permit::Suspect(..) => |_| None,
        };
        let mut state = self.state();
        let mut work = Work { permit: Some(permit), another, user_code: 0 };
        if state.is_unavailable {
            work.release();
        }
        let id = state.works.insert(work);
        Running { workload: self, id }
    }

    /// Records whether the database is unavailable.
    pub(super) fn set_unavailable(&self, is_unavailable: bool) {
        let mut state = self.state();
        let was_unavailable = std::mem::replace(&mut state.is_unavailable, is_unavailable);
        if is_unavailable {
            state.works.iter_mut().for_each(|(_, work)| work.release());
        } else if was_unavailable {
            for (_, work) in &mut state.works {
                work.acquire(&self.lock);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Numbers and permits are consistent at all times.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work {
    /// Returns whether it has a permit now.
    fn acquire(&mut self, lock: &SuspectLock) -> bool {
        if self.permit.is_none() {
            self.permit = (self.another)(lock);
        }
        self.permit.is_some()
    }

    fn release(&mut self) {
        if self.user_code == 0 {
            self.permit = None;
        }
    }
}

impl Running<'_> {
    /// Lets user code run until the returned value is dropped. Drop it before the next statement of idem, which may last as
    /// long as an outage. Returns `None` if the work has lost its permit in an outage, and a suspect runs or waits.
    pub(crate) fn user_code(&self) -> Option<UserCode<'_>> {
        let mut state = self.workload.state();
        let work = state.works.get_mut(self.id)?;
        if !work.acquire(&self.workload.lock) {
            return None;
        }
        work.user_code += 1;
        Some(UserCode(self))
    }

    /// Ends the isolation of a suspect before its outcome is written.
    pub(crate) fn end_isolation(&self) {
        let mut state = self.workload.state();
        if let Some(Work { permit: Some(Permit::Suspect(_, isolated)), .. }) = state.works.get_mut(self.id) {
            *isolated = None;
        }
    }

    /// Ends the run of a suspect. Returns its turn, and its isolation, if it still has them.
    pub(crate) fn into_suspect(self) -> Option<(Turn, Option<Isolated>)> {
        // Its index is free when it is dropped, and only then: another piece of work may have the index after that.
        let permit = self.workload.state().works.get_mut(self.id)?.permit.take();
        match permit? {
            Permit::Suspect(turn, isolated) => Some((turn, isolated)),
            Permit::Direct(_) | Permit::Inbox(_) => None,
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.workload.state().works.try_remove(self.id);
    }
}

impl Drop for UserCode<'_> {
    fn drop(&mut self) {
        let mut state = self.0.workload.state();
        let is_unavailable = state.is_unavailable;
        if let Some(work) = state.works.get_mut(self.0.id) {
            work.user_code -= 1;
            if is_unavailable {
                work.release();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use crate::store::SuspectIsolation;

    use super::*;

    async fn waits(future: impl Future) -> bool {
        tokio::time::timeout(Duration::from_millis(20), future).await.is_err()
    }

    #[tokio::test]
    async fn work_has_its_permit_until_it_ends_unless_its_database_is_unavailable() {
        let lock = SuspectLock::new();
        let workload = Workload::new(lock.clone());
        let turn = lock.turn().await;
        let direct = workload.run(Permit::Direct(lock.direct().await));
        let row = workload.run(Permit::Inbox(lock.inbox().await));
        assert!(waits(turn.isolate(SuspectIsolation::Process)).await);
        workload.set_unavailable(true);
        let isolated = turn.isolate(SuspectIsolation::Process).await;
        assert!(direct.user_code().is_none() && row.user_code().is_none());
        workload.set_unavailable(false);
        assert!(direct.user_code().is_none() && row.user_code().is_none(), "the suspect still runs");
        drop(isolated);
        assert!(direct.user_code().is_some());
        assert!(waits(turn.isolate(SuspectIsolation::Process)).await, "it has a permit again, and keeps it");
        assert!(!waits(turn.isolate(SuspectIsolation::Inbox)).await, "the row has none");
        drop(direct);
        assert!(!waits(turn.isolate(SuspectIsolation::Process)).await);
    }

    #[tokio::test]
    async fn work_has_a_permit_again_when_its_database_is_available() {
        let lock = SuspectLock::new();
        let workload = Workload::new(lock.clone());
        let turn = lock.turn().await;
        let direct = workload.run(Permit::Direct(lock.direct().await));
        workload.set_unavailable(true);
        assert!(!waits(turn.isolate(SuspectIsolation::Process)).await);
        workload.set_unavailable(false);
        assert!(waits(turn.isolate(SuspectIsolation::Process)).await, "its outcome is being written");
        drop(direct);
        assert!(!waits(turn.isolate(SuspectIsolation::Process)).await);
    }

    #[tokio::test]
    async fn work_keeps_its_permit_while_its_user_code_runs() {
        let lock = SuspectLock::new();
        let workload = Workload::new(lock.clone());
        let turn = lock.turn().await;
        let rows = workload.run(Permit::Inbox(lock.inbox().await));
        let (one, other) = (rows.user_code(), rows.user_code());
        workload.set_unavailable(true);
        drop(one);
        let mut isolate = Box::pin(turn.isolate(SuspectIsolation::Process));
        assert!(waits(&mut isolate).await);
        drop(other);
        assert!(!waits(&mut isolate).await);
    }

    #[tokio::test]
    async fn user_code_begins_in_an_outage_if_no_suspect_waits() {
        let lock = SuspectLock::new();
        let workload = Workload::new(lock.clone());
        workload.set_unavailable(true);
        let turn = lock.turn().await;
        let direct = workload.run(Permit::Direct(lock.direct().await));
        let user_code = direct.user_code();
        assert!(user_code.is_some());
        let mut isolate = Box::pin(turn.isolate(SuspectIsolation::Process));
        assert!(waits(&mut isolate).await);
        drop(user_code);
        assert!(direct.user_code().is_none(), "the suspect comes first");
        assert!(!waits(isolate).await);
    }

    #[tokio::test]
    async fn a_suspect_that_lost_its_isolation_has_lost_its_turn_and_runs_no_more_user_code() {
        let lock = SuspectLock::new();
        let workload = Workload::new(lock.clone());
        let turn = lock.turn().await;
        let isolated = turn.isolate(SuspectIsolation::Process).await;
        let suspect = workload.run(Permit::Suspect(turn, Some(isolated)));
        assert!(suspect.user_code().is_some());
        assert!(waits(lock.turn()).await && waits(lock.direct()).await);
        workload.set_unavailable(true);
        assert!(!waits(lock.turn()).await && !waits(lock.direct()).await);
        workload.set_unavailable(false);
        assert!(suspect.user_code().is_none());
        assert!(suspect.into_suspect().is_none());
    }

    #[tokio::test]
    async fn a_suspect_that_has_run_leaves_its_turn_and_its_isolation() {
        let lock = SuspectLock::new();
        let workload = Workload::new(lock.clone());
        let turn = lock.turn().await;
        let isolated = turn.isolate(SuspectIsolation::Process).await;
        let suspect = workload.run(Permit::Suspect(turn, Some(isolated)));
        let (turn, isolated) = suspect.into_suspect().unwrap();
        assert!(waits(lock.direct()).await);
        let suspect = workload.run(Permit::Suspect(turn, isolated));
        suspect.end_isolation();
        assert!(!waits(lock.direct()).await && waits(lock.turn()).await);
        assert!(suspect.into_suspect().is_some_and(|(_, isolated)| isolated.is_none()));
    }
}
