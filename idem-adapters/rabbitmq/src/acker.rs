//! Settling one delivery.

use std::fmt;
use std::pin::pin;
use std::time::Duration;

use idem_core::{Acker, BoxError, Settled};
use lapin::ErrorKind;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::time::timeout;

use crate::bare::BareAcker;

/// Settles one delivery of a [`Queue`](crate::Queue), on the channel that brought it and on no other.
///
/// Delivery tags start again at 1 on each channel, so that a tag kept beyond its channel would settle another message.
/// This holds the acker of the delivery's own channel, which the end of the channel has made unusable: settling then answers
/// [`Settled::Stale`]. RabbitMQ does not confirm, so that the best answer is [`Settled::Sent`].
pub struct RabbitMqAcker(Channel);

/// What brought the delivery.
enum Channel {
    Lapin(lapin::Acker),
    /// A connection that reads what lapin cannot.
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
    /// Fails where the connection ended while the ack was under way: it is not known whether the broker has seen it.
    async fn ack(self) -> Result<Settled, BoxError> {
        match self.0 {
            Channel::Lapin(acker) => {
                // Never `multiple`: it would settle neighbours that are still running.
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

/// Not `basic.reject`: from RabbitMQ 4.3 on that counts as a failed delivery, and `basic.nack` does not.
pub(crate) async fn release(acker: &lapin::Acker) -> lapin::Result<bool> {
    acker.nack(BasicNackOptions { multiple: false, requeue: true }).await
}

/// How often a connection is looked at while it has not answered.
const LOOK: Duration = Duration::from_millis(100);

/// Returns the connection's answer, or an error if the connection has ended: lapin 4.12.3 never answers a command that meets
/// the end of its loop. `live` must not ask `Acker::usable`, which is false as soon as an ack is under way.
async fn answered<T>(answer: impl Future<Output = T>, live: impl Fn() -> bool) -> Result<T, BoxError> {
    let mut answer = pin!(answer);
    loop {
        let was_live = live();
        match timeout(LOOK, &mut answer).await {
            Ok(answer) => return Ok(answer),
            Err(_) if was_live => {}
            Err(_) => return Err("the connection ended while it was under way".into()),
        }
    }
}

fn settled(sent: lapin::Result<bool>) -> Result<Settled, BoxError> {
    match sent {
        Ok(true) => Ok(Settled::Sent),
        Ok(false) => Ok(Settled::Stale),
        // The channel was already closing when the command was looked at: nothing was sent.
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
    async fn an_answer_counts_also_where_the_connection_ends_behind_it() {
        assert_eq!(answered(ready(1), || false).await.unwrap(), 1);
    }
}
