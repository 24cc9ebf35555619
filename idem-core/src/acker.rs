//! Settlement of one delivery.

use crate::BoxError;

/// Settles one delivery, once: `ack` and `release` consume the acker. Handlers never see it.
///
/// An acker belongs to the delivery that it came with. Once the connection, channel or assignment that brought the
/// delivery has ended, settling returns [`Settled::Stale`] and must not touch any other delivery. Dropping an acker
/// without settling leaves the delivery to the broker, which redelivers it. If the broker leases a delivery for a time only,
/// the source extends the lease until the acker is settled or dropped: a delivery may wait, and a handler may run, for longer.
///
/// ```
/// # use idem_core::{Acker, BoxError, Settled};
/// # struct Channel;
/// # impl Channel {
/// #     fn is_open(&self) -> bool { true }
/// #     async fn ack(&self, _: u64) -> Result<(), BoxError> { Ok(()) }
/// #     async fn requeue(&self, _: u64) -> Result<(), BoxError> { Ok(()) }
/// # }
/// struct Tag { channel: Channel, number: u64 }
///
/// impl Acker for Tag {
///     async fn ack(self) -> Result<Settled, BoxError> {
///         if !self.is_live() { return Ok(Settled::Stale) }
///         self.channel.ack(self.number).await.map(|()| Settled::Sent)
///     }
///     async fn release(self) -> Result<Settled, BoxError> {
///         if !self.is_live() { return Ok(Settled::Stale) }
///         self.channel.requeue(self.number).await.map(|()| Settled::Sent)
///     }
///     fn is_live(&self) -> bool { self.channel.is_open() }
/// }
/// ```
pub trait Acker: Send + 'static {
    /// Reports to the broker that the database has taken over the message. Called only after a commit.
    ///
    /// If the future is dropped, the result is unknown. This is harmless: a redelivery finds the claim. The worker
    /// drops the future after 10 seconds, so an ack that is never answered blocks a worker task for no longer than
    /// that.
    fn ack(self) -> impl Future<Output = Result<Settled, BoxError>> + Send;

    /// Called before [`ack`](Self::ack) if the delivery had no claim and was stored in the inbox before its first run.
    /// A source that has to mark redeliveries itself needs these calls.
    fn stored(&mut self) {}

    /// Returns the delivery to the broker immediately, for another worker. Called only while the worker drains. A
    /// broker that cannot take back a single delivery redelivers it once the subscription has ended.
    fn release(self) -> impl Future<Output = Result<Settled, BoxError>> + Send;

    /// Returns whether this worker still owns the delivery. Called before a handler starts; `true` may be out of date
    /// at once.
    fn is_live(&self) -> bool {
        true
    }
}

/// The result of settling a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// Written to the socket. The broker does not confirm, so the settlement can still be lost; a redelivery then finds
    /// the claim.
    Sent,
    /// The broker has confirmed it.
    Confirmed,
    /// The worker no longer owned the delivery, and nothing was sent. The broker redelivers it, and the redelivery
    /// finds the claim.
    Stale,
}
