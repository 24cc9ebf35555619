//! The relay of a process of a trial.

use std::time::Duration;

use idem_core::{Relay, Sink, SinkError, StagedMessage, Store};

use crate::MemorySink;

use super::fate::Fate;
use super::polls::Call;
use super::trial::CONSUMER;

/// The sink of a process. Each publish stops at the point at which the process ends.
pub(super) struct MortalSink {
    sink: MemorySink,
    fate: Fate,
}

impl Sink for MortalSink {
    fn system(&self) -> &'static str {
        self.sink.system()
    }

    fn name(&self) -> &str {
        self.sink.name()
    }

    fn limit(&self) -> Option<usize> {
        self.sink.limit()
    }

    fn publish(&self, message: &StagedMessage) -> impl Future<Output = Result<(), SinkError>> + Send {
        self.fate.polled(Call::Publish, self.sink.publish(message))
    }

    async fn close(&self) {
        self.sink.close().await;
    }
}

/// Returns the relay of a process that has this store.
pub(super) fn relay<S: Store>(store: S, sink: MemorySink, fate: Fate) -> Relay<S, MortalSink> {
    // The lease is how long the next process waits if the trial does not know of the lease of a dead one.
    Relay::new(CONSUMER, store, MortalSink { sink, fate })
        .poll_interval(Duration::from_millis(20))
        .lease_duration(Duration::from_secs(1))
}
