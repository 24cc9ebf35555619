//! Sends single acks and releases with lapin.

use std::pin::pin;
use std::time::Duration;

use idem_core::{BoxError, Settled};
use lapin::ErrorKind;
use lapin::options::{BasicAckOptions, BasicNackOptions};
use tokio::time::timeout;

use crate::error::UNANSWERED;

/// Acks a delivery; with `multiple`, also all that the server counts as unsettled before it on its channel.
pub(crate) async fn ack(acker: &lapin::Acker, multiple: bool) -> Result<Settled, BoxError> {
    settled(answered(acker.ack(BasicAckOptions { multiple }), || !acker.poisoned()).await?)
}

/// Releases a delivery.
pub(crate) async fn release(acker: &lapin::Acker) -> Result<Settled, BoxError> {
    settled(answered(nack(acker), || !acker.poisoned()).await?)
}

/// Uses `basic.nack`, not `basic.reject`: since RabbitMQ 4.3 the latter counts as a failed delivery.
pub(crate) async fn nack(acker: &lapin::Acker) -> lapin::Result<bool> {
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
