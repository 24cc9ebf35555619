//! Settling of deliveries.

use std::fmt;
use std::sync::Arc;

use idem_core::{Acker, BoxError, Settled};

use crate::acks::Acks;
use crate::raw::{self, Kept};

/// Settles one delivery of a [`Queue`](crate::Queue), only on the channel that delivered it.
///
/// Delivery tags restart at 1 on each channel, so a tag used on another channel would settle another message. This type
/// holds the acker of the delivery's channel. After that channel has ended, settling returns [`Settled::Stale`].
/// RabbitMQ does not confirm acks, so the best result is [`Settled::Sent`]. Acks that are requested at about the same
/// time are sent together, as one where that settles no other delivery.
pub struct RabbitMqAcker(Channel);

/// The kind of connection that received the delivery.
enum Channel {
    Lapin {
        acks: Arc<Acks>,
        tag: u64,
        acker: lapin::Acker,
    },
    /// A connection that has read what lapin cannot parse. All messages that it keeps share it.
    Raw {
        kept: Arc<Kept>,
        tag: u64,
    },
}

impl RabbitMqAcker {
    /// Returns the acker of a delivery with this tag, which was added to the acks of its channel.
    pub(crate) fn new(acks: &Arc<Acks>, tag: u64, acker: lapin::Acker) -> Self {
        Self(Channel::Lapin { acks: Arc::clone(acks), tag, acker })
    }

    /// Returns the acker of a message that lapin cannot parse, with this tag on its connection.
    pub(crate) fn raw(kept: &Arc<Kept>, tag: u64) -> Self {
        Self(Channel::Raw { kept: Arc::clone(kept), tag })
    }
}

impl Acker for RabbitMqAcker {
    /// Fails if the connection ends while the ack is being sent: whether the broker received it is then unknown.
    async fn ack(self) -> Result<Settled, BoxError> {
        match self.0 {
            Channel::Lapin { acks, tag, acker } => acks.ack(tag, acker).await,
            Channel::Raw { kept, tag } => raw::ack(kept, tag).await,
        }
    }

    /// Fails as [`ack`](Acker::ack) does.
    async fn release(self) -> Result<Settled, BoxError> {
        match self.0 {
            Channel::Lapin { acks, tag, acker } => acks.release(tag, &acker).await,
            Channel::Raw { kept, tag } => raw::nack(kept, tag).await,
        }
    }

    fn is_live(&self) -> bool {
        match &self.0 {
            Channel::Lapin { acker, .. } => acker.usable(),
            // The server's end of it is not watched: no handler runs for such a message. If it is locked, it is in use.
            Channel::Raw { kept, .. } => kept.try_lock().map_or(true, |raw| raw.is_some()),
        }
    }
}

impl fmt::Debug for RabbitMqAcker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqAcker").field("live", &self.is_live()).finish_non_exhaustive()
    }
}
