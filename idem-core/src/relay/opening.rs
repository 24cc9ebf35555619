//! The opening of a sink. A relay that waits for its broker is alive, and workers that stage must not take it for missing.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;
use uuid::Uuid;

use crate::outbox::{Sink, SinkError};
use crate::runtime::jittered;
use crate::store::{OutboxId, StoreError};
use crate::{Error, Store};

use super::broker;

/// Opens the sink, as soon as the broker answers.
pub(super) async fn open<K: Sink>(sink: &K) -> Result<(), Error> {
    for failures in 0.. {
        match sink.open().await {
            Ok(()) => break,
            Err(SinkError::Message(error)) => {
                return Err(Error::Broker { what: format!("could not publish to {}", sink.name()), source: error });
            }
            Err(SinkError::Broker(error)) => {
                let error = crate::error::text(error.as_ref());
                tracing::warn!(error, sink = sink.name(), "the relay could not open its sink; it tries again");
                sleep(broker::wait(failures)).await;
            }
        }
    }
    Ok(())
}

/// Shows that a relay is alive, until the future is dropped. It begins after a while, since most sinks open at once.
pub(super) async fn show<S: Store>(store: &S, outbox: OutboxId, token: Uuid, lease: Duration) -> Infallible {
    let mut shown = false;
    loop {
        sleep(jittered(lease / 3)).await;
        match round(store, outbox, token, lease, shown).await {
            Ok(now) => shown = now,
            Err(fault) => {
                let error = crate::error::text(&fault);
                tracing::debug!(error, "a relay could not show that it waits for its broker");
            }
        }
    }
}

/// Renews the row of the relay, if no other one shows that it is alive: each of them would leave a share of its lanes to
/// this one, which publishes nothing yet. Returns whether this one shows it.
async fn round<S: Store>(
    store: &S,
    outbox: OutboxId,
    token: Uuid,
    lease: Duration,
    shown: bool,
) -> Result<bool, StoreError> {
    if !shown && store.live_relays(outbox).await? > 0 {
        return Ok(false);
    }
    if store.renew_lanes(outbox, token, lease).await?.relays <= 1 {
        return Ok(true);
    }
    store.give_lanes(outbox, token, None).await?;
    Ok(false)
}
