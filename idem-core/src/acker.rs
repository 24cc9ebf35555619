//! Settling one delivery.

use std::time::Duration;

use crate::BoxError;

/// Settles one delivery, once: `ack` and `release` consume it. Handlers never see it.
///
/// An acker belongs to the delivery that it came with. When the connection, channel or assignment that brought the
/// delivery has ended, settling answers [`Settled::Stale`] and must not touch any other delivery.
/// Dropping an acker without settling leaves the delivery to the broker, which delivers it again.
pub trait Acker: Send + 'static {
    /// Tells the broker that the database has taken the message over. Called only after a commit.
    /// If the future is dropped the answer is unknown, which is harmless: a redelivery finds the claim. The worker drops it
    /// after 10 seconds, so that an ack that is never answered holds up no lane for longer.
    fn ack(self) -> impl Future<Output = Result<Settled, BoxError>> + Send;

    /// Told before [`ack`](Self::ack), when the delivery had no claim and was stored in the inbox before its first run.
    /// A source that has to mark deliveries as redelivered by itself counts these.
    fn stored(&mut self) {}

    /// Gives the delivery back to the broker at once, for another worker. Called only while draining. A broker that
    /// cannot take a single delivery back delivers it again once the subscription has ended.
    fn release(self) -> impl Future<Output = Result<Settled, BoxError>> + Send;

    /// How long the delivery stays ours without [`extend`](Self::extend); `None` where the broker has no such lease.
    fn lease(&self) -> Option<Duration> {
        None
    }

    /// Starts the lease again. The worker calls it at a third of the lease, while the delivery runs or is held.
    fn extend(&mut self) -> impl Future<Output = Result<(), BoxError>> + Send {
        std::future::ready(Ok(()))
    }

    /// Whether the delivery is still ours. Asked before a handler starts; `true` may be outdated at once.
    fn is_live(&self) -> bool {
        true
    }
}

/// What settling a delivery came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Handed to the socket. The broker does not confirm, so that it can still be lost; a redelivery finds the claim.
    Sent,
    /// The broker has confirmed it.
    Confirmed,
    /// The delivery was no longer ours: nothing was sent. The broker delivers it again, and the claim answers.
    Stale,
}
