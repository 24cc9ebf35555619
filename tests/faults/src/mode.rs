//! The two ways through a worker.

use idem::{Postgres, Source, Worker};

use crate::Stage;

/// How a worker takes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Runs each delivery before its ack.
    Direct,
    /// Stores each delivery, acks it, and runs it from the inbox.
    Inbox,
}

impl Mode {
    /// A worker of this mode, whose messages can all run at once.
    pub fn tune<Src: Source>(self, worker: Worker<Postgres, Src, Stage>) -> Worker<Postgres, Src, Stage> {
        // As many rows of the inbox as deliveries: on Kafka the first deliveries after an assignment are stored as well.
        let worker = worker.inbox_in_flight(16);
        match self {
            Self::Direct => worker,
            Self::Inbox => worker.inbox(),
        }
    }
}
