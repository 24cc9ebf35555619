//! The gauges of an outbox, and the outboxes of the database that no relay looks at.

use std::convert::Infallible;
use std::time::Duration;

use tokio::time::sleep;

use crate::Store;
use crate::outbox::Unread;
use crate::runtime::{jittered, within};
use crate::store::OutboxId;
use crate::telemetry::{OUTBOX_COUNTED, RelayMetrics};

/// How often the gauges are read, and how long that may take.
const GAUGES: Duration = Duration::from_secs(15);
const COUNT: Duration = Duration::from_secs(5);

/// Reports until the future is dropped; of a relay that stands by, too. Health does not depend on it.
pub(super) async fn watch<S: Store>(store: &S, outbox: OutboxId, metrics: &RelayMetrics) -> Infallible {
    let mut unread = Unread::default();
    loop {
        match within(COUNT, store.outbox_stats(outbox, OUTBOX_COUNTED)).await {
            Ok(stats) => metrics.outbox.set(&stats),
            // The gauges keep their values.
            Err(error) => tracing::warn!(error, "the messages of the outbox could not be counted"),
        }
        unread.look(store, None).await;
        sleep(jittered(GAUGES)).await;
    }
}
