//! A relay whose broker is away when it starts.

use std::time::Duration;

use idem_core::store::OutboxRows;
use idem_core::{Relay, Sink, SinkError};
use tokio::sync::watch;

use crate::soon;
use crate::store::World;
use idem_test::TappedSink;
use idem_test::tap::SinkTap;

use super::line::{Line, Running, message};

/// A sink cannot be opened until the test says so.
struct Late(watch::Receiver<bool>);

impl SinkTap for Late {
    async fn open<K: Sink>(&self, sink: &K) -> Result<(), SinkError> {
        let is_there = *self.0.borrow();
        if is_there { sink.open().await } else { Err(SinkError::broker("the broker is away")) }
    }
}

impl<W: World> Line<W> {
    fn start_late(&self, open: &watch::Sender<bool>) -> Running {
        let sink = TappedSink::new(self.sink.clone(), Late(open.subscribe()));
        let relay = Relay::new("billing", self.store.clone(), sink).poll_interval(Duration::from_millis(20));
        self.start_with(relay.lease_duration(Duration::from_millis(500)))
    }

    /// Waits until a relay has shown that it runs.
    async fn alive(&self) {
        soon(async {
            while self.store.outbox_stats(self.outbox, 0).await.unwrap().relay_seen.is_none() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        })
        .await;
    }
}

/// Workers that stage do not take it for missing.
pub async fn a_relay_that_waits_for_its_broker_is_alive<W: World>(world: W) {
    let line = Line::new(world).await;
    let open = watch::Sender::new(false);
    let relay = line.start_late(&open);
    line.alive().await;
    line.stage([message("a")]).await;
    assert_eq!(line.sink.published().len(), 0);
    open.send_replace(true);
    line.published(1).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
}

/// It takes no lease from a relay that publishes.
pub async fn a_relay_that_waits_for_its_broker_leaves_the_lease_to_others<W: World>(world: W) {
    let line = Line::new(world).await;
    let open = watch::Sender::new(false);
    let late = line.start_late(&open);
    line.alive().await;
    let relay =
        line.start_with(line.relay(line.store.clone(), line.sink.clone()).lease_duration(Duration::from_millis(500)));
    line.stage((0..200).map(|n| message(n).key(n))).await;
    line.published(200).await;
    line.is_empty().await;
    relay.stop().await.unwrap();
    late.stop().await.unwrap();
}
