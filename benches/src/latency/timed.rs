//! Notes when the worker has committed: idem acks right after the commit.

use bytes::Bytes;
use idem::adapter::{Acker, Settled};
use idem::{BoxError, Delivery};
use idem_test::tap::{AckTap, Tap};

use super::times::Times;

/// Times the acks of a source.
pub(crate) struct Timed(pub(crate) Times);

impl Tap for Timed {
    type Ack = TimedAck;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, TimedAck) {
        let payload = Some(delivery.payload().clone());
        (delivery, TimedAck { payload, times: self.0.clone() })
    }
}

pub(crate) struct TimedAck {
    /// `None` if the message was stored in the inbox: its handler runs later.
    payload: Option<Bytes>,
    times: Times,
}

impl AckTap for TimedAck {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        if let Some(payload) = self.payload {
            self.times.committed(payload);
        }
        acker.ack().await
    }

    fn stored(&mut self) {
        self.payload = None;
    }
}
