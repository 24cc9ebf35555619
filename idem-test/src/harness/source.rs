//! A source whose acks stop at a point.

use std::sync::Arc;

use idem_core::{Acker, BoxError, Delivery, Fingerprint, Key, Settled};

use crate::tap::{AckTap, Tap};
use crate::trace::Subject;

use super::crash::{Crash, Fate};

/// Reads the key and the fingerprint of a delivery; `None` if it has no key. Only a trace needs it.
pub(super) type Identify = Arc<dyn Fn(&Delivery) -> Option<(Key, Fingerprint)> + Send + Sync>;

/// The source of a process: its acks stop at the point at which the process ends.
pub(super) struct Receiving {
    pub(super) fate: Fate,
    pub(super) identify: Identify,
    /// Whether its worker stores each message before it runs.
    pub(super) inbox: bool,
}

/// A delivery that is not settled yet.
pub(super) struct Received {
    fate: Fate,
    /// Its message, and its number in the trace.
    traced: Option<(Subject, u64)>,
}

impl Tap for Receiving {
    type Ack = Received;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Received) {
        let received = || {
            let process = self.fate.traced()?;
            let (key, fingerprint) = (self.identify)(&delivery)?;
            let of = Subject::new(&key, &fingerprint);
            let number = process.received(of.clone(), self.inbox || delivery.redelivered());
            Some((of, number))
        };
        let traced = received();
        (delivery, Received { fate: self.fate.clone(), traced })
    }
}

/// Every ack reaches `AfterAck` once it has returned, and waits there forever if the process ends at that point.
impl AckTap for Received {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let mut step = None;
        if let (Some(process), Some((of, number))) = (self.fate.traced(), self.traced) {
            process.alive().await;
            step = Some(process.begin("acked", of, format!("delivery={number}")));
        }
        let settled = acker.ack().await;
        match (step, &settled) {
            (Some(step), Ok(Settled::Sent | Settled::Confirmed)) => step.done(),
            (Some(step), Ok(Settled::Stale)) => step.nothing(),
            _ => {}
        }
        self.fate.reach(Crash::AfterAck).await;
        settled
    }
}
