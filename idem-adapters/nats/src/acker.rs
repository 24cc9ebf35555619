//! Settles one delivery, and extends the leases of those that wait.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use idem_core::{Acker, BoxError, Settled};
use tokio::time::{Instant, sleep};

use crate::connection::ANSWER;
use crate::lease::Lease;
use crate::leases::Leases;
use crate::link::Link;

/// Settles one delivery of a [`Stream`](crate::Stream), possibly over a later connection than the one that brought it.
///
/// An ack waits for the consumer's response, and only that response makes it [`Settled::Confirmed`]. With
/// [`Stream::unconfirmed_acks`](crate::Stream::unconfirmed_acks) it does not wait and is [`Settled::Sent`]. The server
/// does not distinguish the attempts of a message. An ack is therefore sent even if the lease has expired, because the
/// database has recorded the message, regardless of which worker has it by then. A release is sent only while the lease
/// certainly lasts, and is [`Settled::Stale`] otherwise. If the stream was recreated or the source was closed, nothing
/// is sent.
pub struct NatsAcker {
    pub(crate) lease: Arc<Lease>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) link: Link,
    pub(crate) confirmed: bool,
}

/// <https://docs.nats.io/using-nats/developer/develop_jetstream/consumers#delivery-reliability>
const ACK: &str = "+ACK";
const NAK: &str = "-NAK";
const PROGRESS: &str = "+WPI";

impl Acker for NatsAcker {
    /// If there is no connection, waits for a new one, for at most 5 seconds.
    ///
    /// Fails if the consumer does not respond: it may or may not have received the ack.
    async fn ack(self) -> Result<Settled, BoxError> {
        if !self.lease.settle() {
            return Ok(Settled::Stale);
        }
        // The stream can be recreated during the wait for a connection. The number then refers to another message.
        let meant = || !self.lease.is_void();
        let (sent, settled) = if self.confirmed {
            (self.link.send_confirmed(&self.lease.reply, ACK, meant).await?, Settled::Confirmed)
        } else {
            (self.link.send(&self.lease.reply, ACK, meant).await?, Settled::Sent)
        };
        self.leases.remove(&self.lease);
        Ok(if sent { settled } else { Settled::Stale })
    }

    /// Fails if there is no connection or no response: the message is then redelivered when the lease expires.
    async fn release(self) -> Result<Settled, BoxError> {
        if !self.lease.is_live() || !self.lease.settle() {
            return Ok(Settled::Stale);
        }
        release(&self.link, &self.lease).await?;
        self.leases.remove(&self.lease);
        Ok(Settled::Confirmed)
    }

    fn is_live(&self) -> bool {
        self.lease.is_live()
    }
}

/// Releases a delivery. The caller has checked that its lease lasts.
pub(crate) async fn release(link: &Link, lease: &Lease) -> Result<(), BoxError> {
    link.ask(&lease.reply, NAK, lease.end().min(Instant::now() + ANSWER)).await
}

/// Extends the lease of a delivery. The caller has checked that it lasts. Only a response extends it.
async fn extend(link: &Link, lease: &Lease) -> Result<(), BoxError> {
    let asked = Instant::now();
    link.ask(&lease.reply, PROGRESS, lease.end().min(asked + ANSWER)).await?;
    lease.extended(asked);
    Ok(())
}

impl Drop for NatsAcker {
    fn drop(&mut self) {
        self.lease.drop_it();
    }
}

impl fmt::Debug for NatsAcker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NatsAcker").field("live", &self.is_live()).finish_non_exhaustive()
    }
}

/// Extends the leases of held deliveries after a third of their duration, and forgets dropped ones when their leases
/// expire, which frees their space. Runs as long as the source lives.
///
/// That is any delivery that waits in the buffer or in the worker, or is processed.
pub(crate) async fn keep(link: Link, leases: Arc<Leases>, wait: Duration) {
    loop {
        // Twice as often as needed, because a lease becomes due between two checks.
        sleep(wait / 6).await;
        leases.sweep();
        let due = leases.due();
        for kept in join_all(due.iter().map(|lease| extend(&link, lease))).await {
            if let Err(error) = kept {
                tracing::debug!(error, "the lease of a delivery was not extended");
            }
        }
    }
}
