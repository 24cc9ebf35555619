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
        write!(f, "point {} {}", self.number, self.phase)?;
        match (self.phase, self.number) {
            (Phase::InHandler, 1) => f.write_str(" (it had not begun)"),
            (Phase::InHandler, number) => write!(f, " (during wait {})", number - 1),
            _ => Ok(()),
        }
    }
}

/// A call whose polls are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Call {
    Handler,
    Commit,
    /// Another call of the store about a message, or an ack.
    Other,
}

/// Counts the polls of the phase in which the process dies.
#[derive(Debug)]
pub(super) struct Polls {
    last: Point,
    polls: AtomicUsize,
    has_handled: AtomicBool,
}

impl Polls {
    pub(super) fn until(last: Point) -> Self {
        Self { last, polls: AtomicUsize::new(0), has_handled: AtomicBool::new(false) }
    }

    /// Counts a poll of this call that is about to be made. Returns whether the process dies instead.
    pub(super) fn count(&self, call: Call) -> bool {
        self.phase(call) == self.last.phase && self.polls.fetch_add(1, SeqCst) + 1 == self.last.number
    }

    fn phase(&self, call: Call) -> Phase {
        if call == Call::Handler {
            self.has_handled.store(true, SeqCst);
            return Phase::InHandler;
        }
        match (self.has_handled.load(SeqCst), call) {
            (false, _) => Phase::BeforeHandler,
            (true, Call::Commit) => Phase::InCommit,
            (true, _) => Phase::After,
        }
    }
}
