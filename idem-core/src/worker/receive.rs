//! The receiving task, which supervises the source: it reopens one that has failed, and disconnects from the broker while the
//! worker cannot handle what it holds.

use std::time::Duration;

use async_channel::{Sender, TrySendError};
use backon::ExponentialBackoff;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::{chain, text};
use crate::park::{Arrival, Arrived, Carried, Parked};
use crate::runtime::{Health, Pipeline, Wait, growing_waits};
use crate::{DeliveryOrder, Engine, Error, Source, SubscribeOptions};

/// How long closing a subscription may take before it is left to the broker.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// Passes deliveries to the lanes until the worker drains. If the source fails, it is reopened, with unlimited retries:
/// a lost broker never ends a worker, it only makes it unready. If the database is unavailable for long, or consumption
/// is paused for long, the source is closed until that is over, so that no deliveries are held meanwhile.
pub(super) async fn run<S: Engine, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    options: &SubscribeOptions,
    to: &Arrivals<Src::Acker>,
) {
    let delays = || growing_waits(Duration::from_millis(100), LONGEST);
    let mut waits = delays();
    loop {
        let (limit, began) = (source.unsettled_limit(), Instant::now());
        let leaves = tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            error = forward(pipeline, source, to) => {
                let text = "the connection to the broker was lost; unacked messages are redelivered";
                tracing::warn!(source = source.name(), error, "{text}");
                false
            }
            why = too_long(pipeline, limit) => {
                let text = "held deliveries are returned to the broker, and no more are taken until it is over";
                tracing::warn!(source = source.name(), why, "{text}");
                true
            }
        };
        if began.elapsed() >= RECOVERED {
            waits = delays();
        }
        pipeline.health.set_broker(false);
        pipeline.lag.send_replace(None);
        if leaves {
            let _ = timeout(CLOSE, source.close()).await;
        }
        tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            () = async {
                if leaves {
                    can_go_on(pipeline).await;
                }
                reopen(source, options, &mut waits, &pipeline.health).await;
            } => {}
        }
        // The retention was changed while the worker ran. Ending the worker would not help.
        if let Err(refused) = crate::age::check(source, &pipeline.routes) {
            tracing::error!(%refused, "the broker keeps messages for longer than before");
        }
        pipeline.outage.set_capacity(source.capacity());
        pipeline.health.set_broker(true);
        pipeline.lag.send_replace(source.lag());
        tracing::info!(source = source.name(), "the broker is back");
    }
}

/// The queues for deliveries.
pub(super) struct Arrivals<A> {
    /// Deliveries that can run.
    pub(super) lanes: Sender<Arrival<A>>,
    /// Deliveries that cannot run now: those that were received wait for their turn.
    pub(super) parked: Sender<Parked<A>>,
    /// Redelivered messages, which must not wait for a free lane: a broker with a delivery limit would drop such a
    /// message if this process ended often enough before that.
    pub(super) to_store: Sender<Arrival<A>>,
}

impl<A> Arrivals<A> {
    /// Closes all queues. Items already in them are still taken.
    pub(super) fn close(&self) {
        self.lanes.close();
        self.parked.close();
        self.to_store.close();
    }

    /// Passes on a delivery that was received.
    pub(super) fn push(&self, arrival: Arrival<A>) {
        let must_wait = arrival.carried.order.as_ref().is_some_and(|place| !place.is_first());
        // A queue that a drain has closed takes no more: the close of the source gives the delivery back.
        if must_wait {
            // A redelivered one waits as well: sources refuse queues with a delivery limit, so nothing drops it meanwhile.
            drop(self.parked.try_send(Parked { arrival, until: Wait::Key }));
        } else {
            drop(self.pass(arrival));
        }
    }

    /// Passes on a delivery that can run. Returns it if a drain has closed the queue.
    pub(super) fn pass(&self, arrival: Arrival<A>) -> Option<Arrival<A>> {
        let stores_first = arrival.delivery.ordering_key.is_none() && arrival.delivery.redelivered();
        let queue = if stores_first { &self.to_store } else { &self.lanes };
        queue.try_send(arrival).err().map(TrySendError::into_inner)
    }
}

/// Takes deliveries until the source fails. Takes none while the database is unavailable, consumption is paused, or the
/// outbox is full.
async fn forward<S: Engine, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    to: &Arrivals<Src::Acker>,
) -> crate::BoxError {
    loop {
        can_go_on(pipeline).await;
        match source.next().await {
            // The queues need no limit: the source returns no more than may be unsettled.
            Ok((delivery, acker)) => {
                let mut arrival = Box::new(Arrived { delivery, acker, carried: Carried::default() });
                let delivery = &mut arrival.delivery;
                pipeline.recognize(delivery);
                delivery.ordering_key =
                    delivery.ordering_key.filter(|_| pipeline.settings.order != DeliveryOrder::None);
                arrival.carried.order = delivery.ordering_key.map(|key| pipeline.order.enqueue(key));
                to.push(arrival);
                pipeline.outage.set_capacity(source.capacity());
            }
            Err(error) => return error,
        }
    }
}

/// The longest delay before a source is reopened.
const LONGEST: Duration = Duration::from_secs(5);

/// A source that fails sooner than this has not recovered, and the delays before it is reopened go on growing.
const RECOVERED: Duration = Duration::from_secs(1);

/// Reopens the source, with unlimited retries. A source that refuses although its broker answers is an error in the log
/// and in `health`. As cancel safe as [`Source::subscribe`].
async fn reopen<Src: Source>(
    source: &mut Src,
    options: &SubscribeOptions,
    waits: &mut ExponentialBackoff,
    health: &Health,
) {
    loop {
        tokio::time::sleep(waits.next().unwrap_or(LONGEST)).await;
        let opened = source.subscribe(options.clone()).await;
        let refused = opened.as_ref().err().and_then(|error| refusal(&**error));
        let is_new = health.set_unsubscribed(refused.clone());
        match (opened, refused) {
            (Ok(()), _) => return,
            (Err(_), Some(why)) if is_new => {
                tracing::error!(source = source.name(), why, "nothing is consumed until this is repaired");
            }
            (Err(error), Some(_)) => tracing::debug!(source = source.name(), error, "nothing is consumed yet"),
            (Err(error), None) => tracing::warn!(source = source.name(), error, "the broker is still away"),
        }
    }
}

/// Returns the text of an error that does not pass with an outage: one of the configuration.
fn refusal(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let config = chain(error).filter_map(|part| part.downcast_ref()).find(|part| matches!(part, Error::Config(_)));
    config.map(|config| text(config))
}

/// An outage that starts again within this time is the same outage: held deliveries are retried every two seconds.
const SAME: Duration = Duration::from_secs(10);

/// Waits until the database has been unavailable, consumption paused or the outbox full, for a quarter of the time that
/// the broker lets a delivery stay unsettled. Returns the reason. Held deliveries should then be released: the broker
/// would take them back again and again, or other workers, which can handle them, would get nothing of them. Never
/// completes if the broker has no such limit. Cancel safe.
async fn too_long<S: Engine>(pipeline: &Pipeline<S>, limit: Option<Duration>) -> &'static str {
    let (outage, health) = (&pipeline.outage, &pipeline.health);
    let Some(long) = limit.map(|limit| limit / 4) else { return std::future::pending().await };
    tokio::select! {
        () = lasts(long, || outage.began(), || outage.over()) => "the database has been away for long",
        () = lasts(long, || health.pauses(), || health.resumed()) => "consumption has been paused for long",
        () = lasts(long, || pipeline.outbox_full(true), || pipeline.outbox_full(false)) => "the outbox has been full for long",
    }
}

/// Waits until the worker can take deliveries again. Cancel safe.
async fn can_go_on<S: Engine>(pipeline: &Pipeline<S>) {
    pipeline.outage.over().await;
    pipeline.health.resumed().await;
    pipeline.outbox_full(false).await;
}

/// Waits until an outage has lasted for `long`.
async fn lasts<B: Future, O: Future>(long: Duration, began: impl Fn() -> B, over: impl Fn() -> O) {
    loop {
        began().await;
        let end = Instant::now() + long;
        loop {
            if timeout_at(end, over()).await.is_err() {
                return;
            }
            if timeout(long.min(SAME), began()).await.is_err() {
                break;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::watch;
    use tokio::time::sleep;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns the time until `lasts` reports an outage of one minute. Each change waits so many seconds and then sets
    /// whether the database is up.
    async fn left_after(changes: &[(u64, bool)]) -> Duration {
        let (up, began) = (watch::Sender::new(true), Instant::now());
        let until = async |now: bool| drop(up.subscribe().wait_for(|up| *up == now).await);
        let changes = async {
            for (seconds, now) in changes {
                sleep(Duration::from_secs(*seconds)).await;
                up.send_replace(*now);
            }
            std::future::pending::<()>().await;
        };
        tokio::select! {
            () = lasts(LONG, || until(false), || until(true)) => began.elapsed(),
            () = changes => Duration::ZERO,
            () = sleep(Duration::from_secs(10_000)) => Duration::MAX,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_outage_of_that_time_is_too_long() {
        assert_eq!(left_after(&[]).await, Duration::MAX);
        assert_eq!(left_after(&[(100, false)]).await.as_secs(), 160);
        assert_eq!(left_after(&[(100, false), (59, true)]).await, Duration::MAX);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_begins_again_at_once_is_the_same() {
        assert_eq!(left_after(&[(0, false), (30, true), (5, false), (10, true), (1, false)]).await.as_secs(), 60);
        assert_eq!(left_after(&[(0, false), (30, true), (11, false)]).await.as_secs(), 101);
    }
}
