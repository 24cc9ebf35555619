//! Redelivered messages: they must not wait before they are stored, since a broker may drop them after a few more
//! deliveries.

use idem_core::{Acker, BoxError, Delivery, Settled, Source, SubscribeOptions};
use tokio::sync::watch;

use idem_conformance::store::World;
use idem_conformance::until;
use idem_test::tap::{AckTap, Tap, Tapped};

use super::line::Line;
use super::orders::{Act, Order};
use super::settings::Settings;

/// The message behind the first one is stored although the only lane is busy: for single messages, in batches, and
/// where all messages are stored. A handler keeps the lane busy for as long as it takes; an ack without an answer does so
/// for ten seconds, which must do where a handler keeps all others from writing.
pub async fn a_redelivered_message_is_stored_while_no_lane_is_free<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(if W::FEATURES.concurrent { Order::new("a", &[Act::Wait]) } else { Order::ok("a") });
    line.publish(Order::ok("redelivered"));
    let source = Again::new();
    let go = source.go.clone();
    let worker =
        line.start_at(Tapped::new(line.queue.clone(), source), Settings { concurrency: 1, ..Settings::default() });
    stored(&line).await;
    line.desk.go.send_replace(true);
    go.send_replace(true);
    let claims = line.world.own("processed_messages");
    counts(&line, 2, &format!("SELECT count(*) FROM {claims} WHERE processed_at IS NOT NULL")).await;
    worker.stop().await;
    assert_eq!((line.effects("a").await, line.effects("redelivered").await), (1, 1));
}

/// A client may lose an ack when its connection ends, and never answer it: the lane goes on without the answer.
pub async fn an_ack_that_is_never_answered_ends<W: World>(world: W) {
    let line = Line::new(world).await;
    line.publish(Order::ok("a"));
    line.publish(Order::ok("b"));
    let source = Again { marks: false, ..Again::new() };
    let never = source.go.clone();
    let worker =
        line.start_at(Tapped::new(line.queue.clone(), source), Settings { concurrency: 1, ..Settings::default() });
    let claims = line.world.own("processed_messages");
    counts(&line, 2, &format!("SELECT count(*) FROM {claims} WHERE processed_at IS NOT NULL")).await;
    worker.stop().await;
    drop(never);
    assert_eq!((line.effects("a").await, line.effects("b").await), (1, 1));
}

/// Waits until the redelivered message has a claim.
pub(super) async fn stored<W: World>(line: &Line<W>) {
    let claims = line.world.own("processed_messages");
    counts(line, 1, &format!("SELECT count(*) FROM {claims} WHERE length(key) = {}", "redelivered".len())).await;
}

/// Waits until the query returns this number.
async fn counts<W: World>(line: &Line<W>, number: i64, query: &str) {
    until(async || line.world.number(query).await == number).await;
}

/// Hands out one delivery more than asked for, may mark all after the first as redelivered, and delays the ack of the
/// first one until `go`.
pub(super) struct Again {
    first: bool,
    /// Whether all after the first are marked as redelivered.
    marks: bool,
    go: watch::Sender<bool>,
}

impl Again {
    pub(super) fn new() -> Self {
        Self { first: true, marks: true, go: watch::Sender::new(false) }
    }
}

impl Tap for Again {
    type Ack = Delayed;

    fn receive(&mut self, delivery: Delivery) -> (Delivery, Delayed) {
        let first = std::mem::take(&mut self.first);
        let go = first.then(|| self.go.subscribe());
        (delivery.with_redelivered(self.marks && !first), Delayed(go))
    }

    async fn subscribe<S: Source>(&mut self, source: &mut S, mut options: SubscribeOptions) -> Result<(), BoxError> {
        options.max_unsettled += 1;
        source.subscribe(options).await
    }
}

/// Delays an ack until it is told to go on.
pub(super) struct Delayed(Option<watch::Receiver<bool>>);

impl AckTap for Delayed {
    async fn ack<A: Acker>(self, acker: A) -> Result<Settled, BoxError> {
        if let Some(mut go) = self.0 {
            let _ = go.wait_for(|go| *go).await;
        }
        acker.ack().await
    }
}
