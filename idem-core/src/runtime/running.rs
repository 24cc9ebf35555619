//! The lock that a piece of work holds, and when it ends.

use parking_lot::Mutex;

use super::isolation_lock::{Direct, InboxPermit, Isolated};
use super::outage::Outage;

/// A piece of work: a delivery, a batch, rows, an external call or an orphaned row. It holds its lock until its outcome is written,
/// so that no orphaned row can end the process before that.
///
/// While the database is away no outcome can be written, and an orphaned row of another database would wait for as long as the
/// outage. So work then holds its lock only while its user code runs. Without a lock it goes on to write its outcome, and
/// runs no more user code.
///
/// User code never runs without a lock: one outage, and copies of a message that ends its process, could otherwise make a row
/// dead that runs concurrently with them. An orphaned row that ends the process before an outcome is written still costs that row
/// a start.
#[derive(Debug)]
pub(crate) struct Running(Mutex<State>);

#[derive(Debug)]
struct State {
    lock: Option<Permit>,
    /// How many handlers, codecs and calls run.
    user_code: usize,
    is_away: bool,
}

/// The lock that a piece of work holds.
#[derive(Debug)]
pub(crate) enum Permit {
    #[expect(dead_code, reason = "it only has to be dropped")]
    Direct(Direct),
    Inbox(InboxPermit),
    #[expect(dead_code, reason = "it only has to be dropped")]
    Orphan(Isolated),
}

/// User code of a piece of work, which runs until this is dropped. No orphaned row runs concurrently with it.
#[must_use]
pub(crate) struct UserCode<'a>(&'a Running);

impl Running {
    pub(crate) fn new(lock: Permit) -> Self {
        Self(Mutex::new(State { lock: Some(lock), user_code: 0, is_away: false }))
    }

    /// Does the work. Its lock ends while the database is away. Pin the work before: each call would move the whole future.
    pub(crate) async fn during<T>(&self, outage: &Outage, mut work: impl Future<Output = T> + Unpin) -> T {
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = outage.began() => self.set_away(true),
            }
            tokio::select! {
                biased;
                done = &mut work => return done,
                () = outage.over() => self.set_away(false),
            }
        }
    }

    /// Lets user code run until the returned value is dropped. Drop it before the next statement of idem, which may last as
    /// long as an outage. Returns `None` if the work has lost its lock in an outage.
    pub(crate) fn user_code(&self) -> Option<UserCode<'_>> {
        let mut state = self.0.lock();
        state.lock.as_ref()?;
        state.user_code += 1;
        Some(UserCode(self))
    }

    /// Ends the work. Returns its lock, if it still has it.
    pub(crate) fn into_lock(self) -> Option<Permit> {
        self.0.into_inner().lock
    }

    /// Ends the lock before the work ends.
    pub(crate) fn end(&self) {
        self.0.lock().lock = None;
    }

    fn set_away(&self, is_away: bool) {
        let mut state = self.0.lock();
        state.is_away = is_away;
        state.release();
    }
}

impl State {
    fn release(&mut self) {
        if self.is_away && self.user_code == 0 {
            self.lock = None;
        }
    }
}

impl Drop for UserCode<'_> {
    fn drop(&mut self) {
        let mut state = self.0.0.lock();
        state.user_code -= 1;
        state.release();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::time::Duration;

    use crate::store::{RowKind, StoreError};

    use super::super::health::Health;
    use super::super::isolation_lock::IsolationLock;
    use super::*;

    async fn waits(future: impl Future) -> bool {
        tokio::time::timeout(Duration::from_millis(20), future).await.is_err()
    }

    fn away() -> Outage {
        let outage = Outage::new(Health::new(), 1);
        outage.report(&StoreError::Unavailable("no space left on the disk".into()));
        outage
    }

    #[tokio::test]
    async fn work_holds_its_lock_until_it_ends() {
        let (lock, outage) = (IsolationLock::new(), Outage::new(Health::new(), 1));
        let running = Running::new(Permit::Direct(lock.direct().await));
        assert!(waits(running.during(&outage, pin!(lock.isolate(RowKind::Alone)))).await);
        assert!(running.user_code().is_some());
        drop(running);
        assert!(!waits(lock.isolate(RowKind::Alone)).await);
    }

    #[tokio::test]
    async fn work_loses_its_lock_while_its_database_is_away_and_runs_no_more_user_code() {
        let (lock, outage) = (IsolationLock::new(), away());
        let running = Running::new(Permit::Inbox(lock.inbox().await));
        assert!(!waits(running.during(&outage, pin!(lock.isolate(RowKind::Alone)))).await);
        assert!(running.user_code().is_none());
    }

    #[tokio::test]
    async fn work_keeps_its_lock_in_an_outage_while_its_user_code_runs() {
        let (lock, outage) = (IsolationLock::new(), away());
        let running = Running::new(Permit::Inbox(lock.inbox().await));
        let (one, other) = (running.user_code(), running.user_code());
        let isolate = pin!(lock.isolate(RowKind::Alone));
        let mut work = Box::pin(running.during(&outage, isolate));
        assert!(waits(&mut work).await);
        drop(one);
        assert!(waits(&mut work).await);
        drop(other);
        assert!(!waits(&mut work).await);
    }

    #[tokio::test]
    async fn an_orphan_that_has_run_leaves_its_isolation() {
        let lock = IsolationLock::new();
        let running = Running::new(Permit::Orphan(lock.isolate(RowKind::Alone).await));
        let isolated = running.into_lock();
        assert!(isolated.is_some() && waits(lock.direct()).await);
    }
}
