//! The lease of an outbox: how a relay gets it, and until when it may publish.

use std::time::Duration;

use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::Store;
use crate::outbox::Sink;
use crate::runtime::jittered;
use crate::store::{LeaseAnswer, LeaseRequest, OutboxId};

use super::builder::Relay;

/// How often a relay that stands by asks for the lease.
pub(super) const ASK: Duration = Duration::from_secs(1);

/// How often the lease is renewed at least.
const RENEWED: Duration = Duration::from_secs(5);

/// A lease, by the clock of this process: measured from before it was asked for. When it has ended, it is held under its token
/// until another relay takes it.
#[derive(Debug)]
pub(super) struct Lease {
    length: Duration,
    until: Instant,
}

impl Lease {
    pub(super) fn new(length: Duration, began: Instant) -> Self {
        Self { length, until: began + length }
    }

    /// Records a renewal that was asked for at this time.
    pub(super) fn renewed(&mut self, began: Instant) {
        *self = Self::new(self.length, began);
    }

    /// Returns whether so much is left of it that a message may be published.
    pub(super) fn is_safe(&self, now: Instant) -> bool {
        now + self.length / 3 < self.until
    }

    /// When it is renewed, if the last renewal was asked for at this time.
    pub(super) fn next(&self, began: Instant) -> Instant {
        began + RENEWED.min(self.length / 3)
    }
}

impl<S: Store, K: Sink> Relay<S, K> {
    /// Waits until this relay gets the lease under this token, and returns it, with the outbox: that may have been registered
    /// again. Cancel safe: a lease that was taken by then ends by itself, or is given back.
    pub(super) async fn stand_by(&self, mut outbox: OutboxId, token: Uuid) -> (Lease, OutboxId) {
        let length = self.settings.lease;
        loop {
            let began = Instant::now();
            let answer = self.store.lease_outbox(outbox, token, LeaseRequest::Hold(length)).await;
            self.health.set_database(answer.is_ok());
            match answer {
                Ok(LeaseAnswer::Held) => return (Lease::new(length, began), outbox),
                // Its broker may have been away when it last published.
                Ok(LeaseAnswer::Other) => self.health.set_broker(true),
                Ok(LeaseAnswer::Unknown) => match self.store.register_outbox(&self.name).await {
                    Ok(registered) => outbox = registered,
                    Err(error) => tracing::warn!(%error, "the relay could not register its outbox; it tries again"),
                },
                Err(fault) => {
                    let error = crate::error::text(&fault);
                    tracing::warn!(error, "the relay could not ask for the lease of its outbox; it tries again");
                }
            }
            sleep(jittered(ASK.min(length / 3))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failover_takes_at_most_ten_seconds() {
        let lease = super::super::builder::RelaySettings::default().lease;
        assert!(lease + 2 * ASK <= Duration::from_secs(10));
    }

    #[tokio::test]
    async fn nothing_is_published_in_the_last_third_of_a_lease() {
        let (now, second) = (Instant::now(), Duration::from_secs(1));
        let mut lease = Lease::new(9 * second, now);
        assert!(lease.is_safe(now + Duration::from_millis(5999)) && !lease.is_safe(now + 6 * second));
        lease.renewed(now + 10 * second);
        assert!(lease.is_safe(now + 10 * second));
        assert_eq!(lease.next(now), now + 3 * second);
    }
}
