//! The receiving task, which supervises the source.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use async_channel::Sender;
use tokio::time::timeout;

use crate::park::{Arrival, Carried, Parked};
use crate::runtime::{KeyTicket, LeasedAcker, Pipeline, Rate, Wait};
use crate::worker::leave;
use crate::{Delivery, DeliveryOrder, Source, Store, SubscribeOptions};

use super::reopen::Reopening;

/// How long closing a subscription may take before it is left to the broker.
pub(super) const CLOSE: Duration = Duration::from_secs(5);

/// Passes deliveries to the lanes until the worker drains. If the source fails, it is reopened, with unlimited retries:
/// a lost broker never ends a worker, it only makes it unready. If the database is unavailable for long, or consumption
/// is paused for long, the source is closed until that is over, so that no deliveries are held meanwhile.
pub(crate) async fn run<S: Store, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    options: &SubscribeOptions,
    to: &Arrivals<LeasedAcker<Src::Acker>>,
) {
    let settled = || pipeline.settled.load(Relaxed);
    let mut reopening = Reopening::new(settled());
    loop {
        let (name, limit) = (source.name().to_owned(), source.unsettled_limit());
        let ended = tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            error = forward(pipeline, source, to) => Ok(error),
            why = leave::too_long(pipeline, limit) => Err(why),
        };
        pipeline.health.set_broker(false);
        pipeline.lag.send_replace(None);
        let left = ended.is_err();
        match ended {
            Ok(error) => {
                tracing::warn!(
                    source = name,
                    error,
                    "the connection to the broker was lost; unacked messages are redelivered"
                )
            }
            Err(why) => {
                tracing::warn!(
                    source = name,
                    why,
                    "held deliveries are returned to the broker, and no more are taken until it is over"
                );
                let _ = timeout(CLOSE, source.close()).await;
            }
        }
        tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            () = async {
                if left {
                    leave::over(pipeline).await;
                }
                reopening.open(source, options, settled(), &pipeline.health).await;
            } => {}
        }
        // The retention was changed while the worker ran. Ending the worker would not help.
        if let Err(refused) = crate::age::check(source, &pipeline.routes) {
            tracing::error!(%refused, "the broker keeps messages for longer than before");
        }
        pipeline.outage.set_room(source.room());
        pipeline.health.set_broker(true);
        pipeline.lag.send_replace(source.lag());
        tracing::info!(source = source.name(), "the broker is back");
    }
}

/// Takes deliveries until the source fails. Takes none while the database is unavailable, consumption is paused, or the
/// outbox is full.
async fn forward<S: Store, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    to: &Arrivals<LeasedAcker<Src::Acker>>,
) -> crate::BoxError {
    loop {
        pipeline.outage.over().await;
        pipeline.health.resumed().await;
        pipeline.outbox_full(false).await;
        match source.next().await {
            // The queues need no limit: the source returns no more than may be unsettled.
            Ok((mut delivery, acker)) => {
                warn_of_many(&delivery, &pipeline.redeliveries);
                pipeline.recognize(&mut delivery);
                delivery.ordering_key =
                    delivery.ordering_key.filter(|_| pipeline.settings.order != DeliveryOrder::None);
                let place = delivery.ordering_key.map(|key| pipeline.order.place(key));
                to.push(Box::new(delivery), LeasedAcker::new(acker), place);
                pipeline.outage.set_room(source.room());
            }
            Err(error) => return error,
        }
    }
}

/// The queues for received deliveries.
pub(crate) struct Arrivals<A> {
    /// Deliveries that can run.
    pub(crate) lanes: Sender<Arrival<A>>,
    /// Deliveries that cannot run now: those received here wait for their turn.
    pub(crate) parked: Sender<Parked<A>>,
    /// Redelivered messages, which must not wait for a free lane: a broker with a delivery limit would drop such a
    /// message if this process ended often enough before that.
    pub(crate) to_store: Sender<Arrival<A>>,
}

impl<A> Arrivals<A> {
    /// Closes all queues. Items already in them are still taken.
    pub(super) fn close(&self) {
        self.lanes.close();
        self.parked.close();
        self.to_store.close();
    }

    fn push(&self, delivery: Box<Delivery>, acker: A, place: Option<KeyTicket>) {
        let must_wait = place.as_ref().is_some_and(|place| !place.is_first());
        let stores_first = place.is_none() && delivery.redelivered();
        let arrival = Arrival { delivery, acker, carried: Carried { order: place, ..Carried::default() } };
        // What a drain has closed takes no more: the close of the source gives it back.
        if must_wait {
            // Also one that was redelivered: sources refuse queues with a delivery limit, so nothing drops it while it waits.
            drop(self.parked.try_send(Parked { arrival, until: Wait::Order }));
        } else if stores_first {
            drop(self.to_store.try_send(arrival));
        } else {
            drop(self.lanes.try_send(arrival));
        }
    }
}

/// The delivery count from which a warning is logged. RabbitMQ 4 drops a message at the 21st return by default.
const MANY: u32 = 10;

/// The least time between two warnings. A return counts for all deliveries that the connection had.
const PAUSE: Duration = Duration::from_secs(60);

fn warn_of_many(delivery: &Delivery, last: &Rate) {
    if let Some(count) = delivery.delivery_count().filter(|count| *count >= MANY)
        && last.allows(PAUSE)
    {
        tracing::warn!(
            source = delivery.source(),
            message_id = delivery.message_id(),
            position = delivery.position(),
            count,
            "the broker has redelivered a message many times, and drops it if the queue has a delivery limit: find \
             out why workers or connections end (out of memory, a crash loop, a consumer timeout). It is logged once a minute"
        );
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::{Event, Level, Subscriber};
    use tracing_subscriber::Layer;
    use tracing_subscriber::layer::{Context, SubscriberExt};

    use super::*;

    /// The `count` fields of logged warnings.
    #[derive(Clone, Default)]
    struct Warnings(Arc<Mutex<Vec<u64>>>);

    impl<S: Subscriber> Layer<S> for Warnings {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            assert_eq!(*event.metadata().level(), Level::WARN);
            event.record(&mut self.clone());
        }
    }

    impl Visit for Warnings {
        fn record_u64(&mut self, field: &Field, value: u64) {
            assert_eq!(field.name(), "count");
            self.0.lock().unwrap().push(value);
        }

        fn record_debug(&mut self, _: &Field, _: &dyn std::fmt::Debug) {}
    }

    #[test]
    fn messages_that_were_delivered_ten_times_are_one_warning_a_minute() {
        let (warnings, last) = (Warnings::default(), Rate::default());
        crate::log_of_tests::with_subscriber(tracing_subscriber::registry().with(warnings.clone()), || {
            for count in [None, Some(1), Some(9), Some(10), Some(500)] {
                warn_of_many(&Delivery::new("orders", "{}").with_delivery_count(count), &last);
            }
        });
        assert_eq!(*warnings.0.lock().unwrap(), [10]);
    }
}
