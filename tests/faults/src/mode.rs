//! The modes of a worker.

use std::time::Duration;

use idem::{DeliveryOrder, RetryPolicy, Source, Store, Worker};
use serde::{Deserialize, Serialize};

use crate::Stage;

/// How a worker processes messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Runs each delivery before its ack.
    Direct,
    /// Stores each delivery, acks it, and runs it from the inbox.
    Inbox,
    /// Runs deliveries together in one transaction, one after the other, and then acks them.
    Batch,
    /// Runs deliveries in the order of their queue, and a message that has failed after an hour.
    Order,
}

impl Mode {
    /// Sets this mode on a worker that can hold all messages of a test at once.
    pub fn tune<S: Store, Src: Source>(self, worker: Worker<S, Src, Stage>) -> Worker<S, Src, Stage> {
        // As many inbox rows as deliveries: on Kafka the first deliveries after an assignment are also stored.
        let worker = worker.inbox_concurrency(16);
        match self {
            Self::Direct => worker,
            Self::Inbox => worker.inbox(),
            // The few messages of a test arrive a moment apart, and should still form a batch.
            Self::Batch => worker.concurrency(4).batch(16).linger(Duration::from_millis(10)),
            Self::Order => {
                let hour = Duration::from_secs(3600);
                worker.order(DeliveryOrder::Queue).retry(RetryPolicy::new().min_delay(hour).max_delay(hour))
            }
        }
    }

    /// How many of `messages` messages that wait for the stage surely run at once: in a batch, only the first one does.
    pub fn at_once(self, messages: usize) -> usize {
        if self == Self::Batch { 1 } else { messages }
    }
}
