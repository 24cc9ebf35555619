//! The relay of a process of a trial.

use std::time::Duration;

use idem_core::{Relay, Sink, SinkError, StagedMessage, Store};

use crate::MemorySink;
use crate::tap::{SinkTap, TappedSink};

use super::crash_plan::CrashPlan;
use super::polls::Call;
use super::trial::CONSUMER;

/// Each publish stops at the point at which the process ends.
impl SinkTap for CrashPlan {
    fn publish<K: Sink>(
        &self,
        sink: &K,
        message: &StagedMessage,
    ) -> impl Future<Output = Result<(), SinkError>> + Send {
        self.polled(Call::Publish, sink.publish(message))
    }
}

/// Returns the relay of a process that has this store.
pub(super) fn relay<S: Store>(
    store: S,
    sink: MemorySink,
    crash_plan: CrashPlan,
) -> Relay<S, TappedSink<MemorySink, CrashPlan>> {
    // The lease is how long the next process waits if the trial does not know of the lease of a dead one.
    Relay::new(CONSUMER, store, TappedSink::new(sink, crash_plan))
        .poll_interval(Duration::from_millis(20))
        .lease_duration(Duration::from_secs(1))
}
