//! Settling one delivery.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use idem_core::{Acker, BoxError, Settled};
use tokio::time::Instant;

use crate::connection::{ANSWER, Link};
use crate::lease::{Lease, Leases};

/// Settles one delivery of a [`Stream`](crate::Stream), also by a later connection than the one that brought it.
///
/// An ack waits for the consumer's answer, and is [`Settled::Confirmed`] by that answer only; with
/// [`Stream::unconfirmed_acks`](crate::Stream::unconfirmed_acks) it is [`Settled::Sent`]. The server does not tell the
/// attempts of a message apart. So an ack is sent even where the lease has run out, since the message is taken over,
/// regardless of which worker has it by then; a release is sent only while the delivery is surely ours, and is
/// [`Settled::Stale`] otherwise. Where the stream was recreated, and where the source was closed, nothing is sent at all.
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
    /// Waits for a new connection where there is none, for at most 5 seconds.
    ///
    /// Fails where the consumer did not answer: it is not known whether it has seen the ack.
    async fn ack(self) -> Result<Settled, BoxError> {
        if !self.lease.settle() {
            return Ok(Settled::Stale);
        }
        // The wait for a connection can outlast the stream: in a new one the number is that of another message.
        let meant = || !self.lease.is_void();
        let (sent, settled) = if self.confirmed {
            (self.link.insist(&self.lease.reply, ACK, meant).await?, Settled::Confirmed)
        } else {
            (self.link.tell(&self.lease.reply, ACK, meant).await?, Settled::Sent)
        };
        self.leases.remove(&self.lease);
        Ok(if sent { settled } else { Settled::Stale })
    }

    /// Fails where there is no connection, or no answer: the delivery then comes again when its lease has run out.
    async fn release(self) -> Result<Settled, BoxError> {
        if !self.lease.is_live() || !self.lease.settle() {
            return Ok(Settled::Stale);
        }
        release(&self.link, &self.lease).await?;
        self.leases.remove(&self.lease);
        Ok(Settled::Confirmed)
    }

    fn lease(&self) -> Option<Duration> {
        Some(self.lease.wait)
    }

    /// Fails where the lease has run out, where there is no connection, and where the consumer does not answer. The lease
    /// begins again only by an answer.
    async fn extend(&mut self) -> Result<(), BoxError> {
        if !self.lease.is_live() {
            return Err("the lease of the delivery has run out".into());
        }
        extend(&self.link, &self.lease).await
    }

    fn is_live(&self) -> bool {
        self.lease.is_live()
    }
}

/// Gives a delivery back that is surely ours.
pub(crate) async fn release(link: &Link, lease: &Lease) -> Result<(), BoxError> {
    link.ask(&lease.reply, NAK, lease.end().min(Instant::now() + ANSWER)).await
}

/// Starts the lease of a delivery again that is surely ours.
pub(crate) async fn extend(link: &Link, lease: &Lease) -> Result<(), BoxError> {
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
