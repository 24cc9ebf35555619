//! Settling of deliveries.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use idem_core::{Acker, BoxError, Settled};
use lapin::ErrorKind;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::time::timeout;

use crate::bare::BareAcker;
use crate::error::UNANSWERED;

/// Settles one delivery of a [`Queue`](crate::Queue), only on the channel that delivered it.
///
/// Delivery tags restart at 1 on each channel, so a tag used on another channel would settle another message. This type
/// holds the acker of the delivery's channel. After that channel has ended, settling returns [`Settled::Stale`].
/// RabbitMQ does not confirm acks, so the best result is [`Settled::Sent`].
pub struct RabbitMqAcker(Channel);

/// The kind of connection that received the delivery.
enum Channel {
    Lapin(lapin::Acker),
    /// A connection that parses what lapin cannot.
    Bare(BareAcker),
}

impl From<lapin::Acker> for RabbitMqAcker {
    fn from(acker: lapin::Acker) -> Self {
        Self(Channel::Lapin(acker))
    }
}

impl From<BareAcker> for RabbitMqAcker {
    fn from(acker: BareAcker) -> Self {
        Self(Channel::Bare(acker))
    }
}

impl Acker for RabbitMqAcker {
    /// Fails if the connection ends while the ack is being sent: whether the broker received it is then unknown.
    async fn ack(self) -> Result<Settled, BoxError> {
        match self.0 {
            Channel::Lapin(acker) => {
                // Never `multiple`: it would settle other deliveries that are still running.
                let ack = acker.ack(BasicAckOptions { multiple: false });
                settled(answered(ack, || !acker.poisoned()).await?)
            }
            Channel::Bare(acker) => acker.ack().await,
        }
    }

    /// Fails as [`ack`](Acker::ack) does.
    async fn release(self) -> Result<Settled, BoxError> {
        match self.0 {
            Channel::Lapin(acker) => settled(answered(release(&acker), || !acker.poisoned()).await?),
            Channel::Bare(acker) => acker.release().await,
        }
    }

    fn is_live(&self) -> bool {
        match &self.0 {
            Channel::Lapin(acker) => acker.usable(),
            Channel::Bare(acker) => acker.is_live(),
        }
    }
}

/// Uses `basic.nack`, not `basic.reject`: since RabbitMQ 4.3 the latter counts as a failed delivery.
pub(crate) async fn release(acker: &lapin::Acker) -> lapin::Result<bool> {
    acker.nack(BasicNackOptions { multiple: false, requeue: true }).await
}

/// How often to check a connection that has not answered.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the connection's answer, or an error if the connection has ended: lapin 4.12.3 never answers a command that
/// is queued while its loop ends. `live` must not call `Acker::usable`, which is false once an ack is in progress.
async fn answered<T>(answer: impl Future<Output = T>, live: impl Fn() -> bool) -> Result<T, BoxError> {
    let mut answer = pin!(answer);
    loop {
        let was_live = live();
        match timeout(LOOK, &mut answer).await {
            Ok(answer) => return Ok(answer),
            Err(_) if was_live => {}
            Err(_) => return Err(UNANSWERED.into()),
        }
    }
}

fn settled(sent: lapin::Result<bool>) -> Result<Settled, BoxError> {
    match sent {
        Ok(true) => Ok(Settled::Sent),
        Ok(false) => Ok(Settled::Stale),
        // The channel was already closing when the command was processed: nothing was sent.
        Err(error)
            if matches!(
                error.kind(),
                ErrorKind::InvalidChannel(_)
                    | ErrorKind::InvalidChannelState(..)
                    | ErrorKind::InvalidConnectionState(_)
            ) =>
        {
            Ok(Settled::Stale)
        }
        Err(error) => Err(error.into()),
    }
}

impl fmt::Debug for RabbitMqAcker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RabbitMqAcker").field("live", &self.is_live()).finish()
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_ack_that_a_lost_connection_never_answers_ends() {
        assert!(answered(pending::<()>(), || false).await.is_err());
        let live = AtomicBool::new(true);
        let mut waiting = pin!(answered(pending::<()>(), || live.load(Relaxed)));
        // A connection that the broker has blocked answers late.
        assert!(timeout(Duration::from_secs(600), &mut waiting).await.is_err());
        live.store(false, Relaxed);
        assert!(waiting.await.is_err());
    }

    #[tokio::test]
    async fn an_answer_counts_even_if_the_connection_ends_behind_it() {
        assert_eq!(answered(ready(1), || false).await.unwrap(), 1);
    }
}
