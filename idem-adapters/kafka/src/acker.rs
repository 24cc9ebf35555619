//! Settles one delivery.

use std::fmt;
use std::sync::Arc;

use idem_core::{Acker, BoxError, Settled};

use crate::partition::Receipt;
use crate::shared::Shared;

/// Settles one delivery of a [`Topic`](crate::Topic), in the assignment that delivered it and in no other.
///
/// An ack marks the delivery as finished. The offset up to which the whole partition is finished is committed a little
/// later, so the best result is [`Settled::Sent`]. If the partition has moved to another member of the group, or the
/// subscription has ended, settling returns [`Settled::Stale`] and nothing is committed.
///
/// Kafka cannot take back a single delivery. A released or dropped delivery holds back the finished offset of its
/// partition and is delivered again to the partition's next owner.
pub struct KafkaAcker {
    shared: Arc<Shared>,
    receipt: Receipt,
    settled: bool,
}

impl KafkaAcker {
    pub(crate) fn new(shared: Arc<Shared>, receipt: Receipt) -> Self {
        Self { shared, receipt, settled: false }
    }
}

impl Acker for KafkaAcker {
    /// Never fails.
    async fn ack(mut self) -> Result<Settled, BoxError> {
        self.settled = true;
        Ok(if self.shared.ack(&self.receipt) { Settled::Sent } else { Settled::Stale })
    }

    fn stored(&mut self) {
        self.receipt.marked = false;
    }

    /// Never fails.
    async fn release(mut self) -> Result<Settled, BoxError> {
        self.settled = true;
        Ok(if self.shared.leave(&self.receipt) { Settled::Sent } else { Settled::Stale })
    }

    fn is_live(&self) -> bool {
        self.receipt.assignment.is_live()
    }
}

impl Drop for KafkaAcker {
    fn drop(&mut self) {
        if !self.settled {
            self.shared.leave(&self.receipt);
        }
    }
}

impl fmt::Debug for KafkaAcker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KafkaAcker").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use idem_core::{Delivery, DeliveryOrder};

    use super::*;
    use crate::partition::TopicPartition;

    #[tokio::test]
    async fn a_delivery_that_was_stored_lets_no_further_one_be_marked() {
        let shared = Arc::new(Shared::new(1, 10, DeliveryOrder::None));
        shared.lock().assigned.assign(TopicPartition::new(&"orders".into(), 0), None);
        let mut marks = Vec::new();
        for offset in 0..3 {
            shared.receive(1, vec![(offset, Delivery::new("orders", "{}"))]);
            let (receipt, delivery) = shared.next().await.unwrap();
            let mut acker = KafkaAcker::new(Arc::clone(&shared), receipt);
            // The first one is a duplicate.
            if offset > 0 {
                acker.stored();
            }
            assert_eq!(acker.ack().await.unwrap(), Settled::Sent);
            marks.push(delivery.redelivered());
        }
        assert_eq!(marks, [true, true, false]);
    }
}
