//! A source whose acks stop at a point.

use std::sync::Arc;

use idem_core::{Acker, BoxError, Codec, Delivery, Fingerprint, Handler, Key, Settled};

use crate::tap::{AckTap, Tap};
use crate::trace::Subject;

use super::crash::Crash;
use super::crash_plan::CrashPlan;
use super::polls::Call;

/// Reads the key and the fingerprint of a delivery; `None` if it has no key. Only a trace needs it.
pub(super) type Identify = Arc<dyn Fn(&Delivery) -> Option<(Key, Fingerprint)> + Send + Sync>;

/// Reads the messages of this handler.
pub(super) fn identify<H: Handler, C: Codec<H::Message>>(codec: Arc<C>) -> Identify {
    Arc::new(move |delivery: &Delivery| {
        let message = codec.decode(delivery).ok()?;
        Some((H::key(&message, delivery).ok()?, H::fingerprint(delivery)))
    })
}

/// The source of a process: its acks stop at the point at which the process ends.
pub struct Receiving {
    pub(super) crash_plan: CrashPlan,
    pub(super) identify: Identify,
    /// Whether its worker stores each message before it runs.
    pub(super) stores: bool,
}

impl std::fmt::Debug for Receiving {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Receiving").field("crash_plan", &self.crash_plan).finish_non_exhaustive()
    }
}

/// A delivery that is not settled yet.
#[derive(Debug)]
pub struct Received {
    crash_plan: CrashPlan,
    /// Its message, and its number in the trace.
    traced: Option<(Subject, u64)>,
}

impl Tap for Receiving {
    type Ack = Received;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Received) {
        let received = || {
            let process = self.crash_plan.traced()?;
            let (key, fingerprint) = (self.identify)(&delivery)?;
            let of = Subject::new(&key, &fingerprint);
            let number = process.received(of.clone(), self.stores || delivery.redelivered());
            Some((of, number))
        };
        let traced = received();
        (delivery, Received { crash_plan: self.crash_plan.clone(), traced })
    }
}

/// Every ack reaches `AfterAck` once it has returned, and waits there forever if the process ends at that point.
impl AckTap for Received {
    async fn ack<A: Acker>(mut self, acker: A) -> Result<Settled, BoxError> {
        let mut step = None;
        if let (Some((of, number)), Some(process)) = (self.traced.take(), self.crash_plan.traced()) {
            process.alive().await;
            step = Some(process.begin("acked", of, format!("delivery={number}")));
        }
        let settled = self.crash_plan.polled(Call::Other, acker.ack()).await;
        match (step, &settled) {
            (Some(step), Ok(Settled::Sent | Settled::Confirmed)) => step.done(),
            (Some(step), Ok(Settled::Stale)) => step.done_as("gone"),
            _ => {}
        }
        self.crash_plan.reach(Crash::AfterAck).await;
        settled
    }
}

/// It was not acked: it is lost, or was released.
impl Drop for Received {
    fn drop(&mut self) {
        if let (Some((of, number)), Some(process)) = (self.traced.take(), self.crash_plan.traced()) {
            process.begin("gone", of, format!("delivery={number}")).done();
        }
    }
}
