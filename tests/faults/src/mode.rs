//! The ways through a worker.

use std::time::Duration;

use idem::{Postgres, Source, Worker};

use crate::Stage;

/// How a worker takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Runs each delivery before its ack.
    Direct,
    /// Stores each delivery, acks it, and runs it from the inbox.
    Inbox,
    /// Runs deliveries together in one transaction, one after another, and then acks them.
    Batch,
}

impl Mode {
    /// A worker of this mode, whose messages can all be in its hands at once.
    pub fn tune<Src: Source>(self, worker: Worker<Postgres, Src, Stage>) -> Worker<Postgres, Src, Stage> {
        // As many rows of the inbox as deliveries: on Kafka the first deliveries after an assignment are stored as well.
        let worker = worker.inbox_in_flight(16);
        match self {
            Self::Direct => worker,
            Self::Inbox => worker.inbox(),
            // The few messages of a test come a moment apart, and are to be in a batch all the same.
            Self::Batch => worker.in_flight(4).batch(16).linger(Duration::from_millis(10)),
        }
    }

    /// How many of so many messages that wait for the stage are sure to run at once: in a batch, the first of it does.
    pub fn at_once(self, messages: usize) -> usize {
        if self == Self::Batch { 1 } else { messages }
    }

    /// As one process tells it to another.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Inbox => "inbox",
            Self::Batch => "batch",
        }
    }

    pub(crate) fn parse(name: &str) -> Option<Self> {
        [Self::Direct, Self::Inbox, Self::Batch].into_iter().find(|mode| mode.name() == name)
    }
}
