//! The polls of a process, and the one before which it dies.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use super::phase::Phase;

/// A point at which a process dies: before this poll of a phase, counted from 1.
#[derive(Debug, Clone, Copy)]
pub(super) struct Point {
    pub(super) phase: Phase,
    pub(super) number: usize,
}

impl fmt::Display for Point {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { phase, number } = self;
        write!(f, "point {number} {phase}")?;
        match (phase, number) {
            (Phase::InHandler, 1) => f.write_str(" (it had not begun)"),
            (Phase::InHandler, _) => write!(f, " (during wait {})", number - 1),
            (Phase::CallWritten, _) => f.write_str(" (nothing was sent)"),
            (Phase::InCall, _) => write!(f, " (during wait {number}, the request may be sent)"),
            (Phase::InPublish, _) => write!(f, " (during wait {number}, the broker may have the message)"),
            _ => Ok(()),
        }
    }
}

/// A call whose polls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Handler,
    /// A handler of local messages.
    LocalHandler,
    Commit,
    /// A fetch of messages for their external calls.
    Fetch,
    /// An external call.
    External,
    /// The record of its result.
    Record,
    /// The sink publishes a message.
    Publish,
    /// The relay deletes what is confirmed.
    Delete,
    /// Another call of the store about a message, or an ack.
    Other,
}

/// Counts the polls of the phase in which the process dies.
#[derive(Debug)]
pub(super) struct Polls {
    last: Point,
    /// Whether the handler makes an external call.
    calls: bool,
    polls: AtomicUsize,
    has_committed: AtomicBool,
    has_fetched: AtomicBool,
    has_handled: AtomicBool,
    is_calling: AtomicBool,
    is_publishing: AtomicBool,
}

impl Polls {
    pub(super) fn until(last: Point, calls: bool) -> Self {
        let no = || AtomicBool::new(false);
        Self {
            last,
            calls,
            polls: AtomicUsize::new(0),
            has_committed: no(),
            has_fetched: no(),
            has_handled: no(),
            is_calling: no(),
            is_publishing: no(),
        }
    }

    /// Counts a poll of this call that is about to be made. Returns whether the process dies instead.
    pub(super) fn count(&self, call: Call) -> bool {
        // Fetches are made all the time. Only while a message is stored and not fetched they are about one.
        let is_idle = || !self.has_committed.load(SeqCst) || self.has_fetched.load(SeqCst);
        if call == Call::Fetch && is_idle() {
            return false;
        }
        self.is_last(self.phase(call))
    }

    /// Counts the answer to this call, which may be there in its first poll, as that to COMMIT is if the thread of SQLite
    /// runs before this one does. So there is always a point behind each of these calls. Returns whether the process dies
    /// without it.
    pub(super) fn answered(&self, call: Call) -> bool {
        let phase = match call {
            Call::Commit => {
                self.has_committed.store(true, SeqCst);
                self.phase(call)
            }
            Call::External => Phase::AnswerRead,
            Call::Publish => Phase::ConfirmRead,
            Call::Delete => Phase::Deleted,
            Call::Record => self.phase(call),
            Call::Handler | Call::LocalHandler | Call::Fetch | Call::Other => return false,
        };
        self.is_last(phase)
    }

    /// Returns a value at whose drop this call is over: it was answered, or was dropped itself, as by its timeout.
    pub(super) fn ends(&self, call: Call) -> Ending<'_> {
        Ending { polls: self, call }
    }

    /// A message was fetched for its call.
    pub(super) fn fetched(&self) {
        self.has_fetched.store(true, SeqCst);
    }

    fn is_last(&self, phase: Phase) -> bool {
        phase == self.last.phase && self.polls.fetch_add(1, SeqCst) + 1 == self.last.number
    }

    fn phase(&self, call: Call) -> Phase {
        match call {
            Call::Handler => {
                self.has_handled.store(true, SeqCst);
                Phase::InHandler
            }
            Call::LocalHandler => Phase::InLocalHandler,
            Call::External if self.is_calling.swap(true, SeqCst) => Phase::InCall,
            Call::External => Phase::CallWritten,
            Call::Record => Phase::AnswerKept,
            Call::Publish if self.is_publishing.swap(true, SeqCst) => Phase::InPublish,
            Call::Publish => Phase::BeforePublish,
            Call::Delete => Phase::InDelete,
            Call::Commit | Call::Fetch | Call::Other if !self.has_handled.load(SeqCst) => {
                if self.calls && !self.has_fetched.load(SeqCst) { Phase::BeforeCall } else { Phase::BeforeHandler }
            }
            Call::Commit => Phase::InCommit,
            Call::Fetch | Call::Other => Phase::After,
        }
    }
}

/// Ends a call at its drop. The next one begins with a point at which nothing is sent.
pub(super) struct Ending<'a> {
    polls: &'a Polls,
    call: Call,
}

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        match self.call {
            Call::External => self.polls.is_calling.store(false, SeqCst),
            Call::Publish => self.polls.is_publishing.store(false, SeqCst),
            _ => {}
        }
    }
}
