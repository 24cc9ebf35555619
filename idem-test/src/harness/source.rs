//! A source whose acks stop at a point.

use idem_core::{Acker, BoxError, Delivery, Settled};

use crate::tap::{AckTap, Tap};

use super::crash::Crash;
use super::fate::Fate;
use super::polls::Call;

/// Every ack reaches `AfterAck` once it has returned, and waits there forever if the process ends at that point.
impl Tap for Fate {
    type Ack = Self;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Self) {
        (delivery, self.clone())
    }
}

impl AckTap for Fate {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        let settled = self.polled(Call::Other, acker.ack()).await;
        self.reach(Crash::AfterAck).await;
        settled
    }
}
