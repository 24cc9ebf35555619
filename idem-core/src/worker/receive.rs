//! Receiving: the supervisor of the source.

use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

use crate::pipeline::Pipeline;
use crate::worker::{Arrival, Place, Queue, Waiting};
use crate::{Delivery, Ordering, Source, Store, Terms};

/// Hands deliveries to the lanes until the worker drains. A source that fails is opened again, for ever: a lost broker
/// never ends a worker, it makes it unready.
pub(crate) async fn run<S: Store, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    terms: &Terms,
    to: &Arrivals<Src::Acker>,
) {
    loop {
        let ended = tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            error = forward(pipeline, source, to) => error,
        };
        pipeline.health.set_broker(false);
        tracing::warn!(source = source.name(), error = ended, "the broker is lost; deliveries come again");
        tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            () = open(source, terms) => {}
        }
        // It was changed while the worker ran: an end of the worker would help nobody.
        if let Err(refused) = crate::age::check(source, pipeline.routes.retention()) {
            tracing::error!(%refused, "the broker keeps messages for longer than before");
        }
        pipeline.health.set_broker(true);
        tracing::info!(source = source.name(), "the broker is back");
    }
}

/// Takes deliveries until the source fails. None is taken while the database is away, or consumption is paused.
async fn forward<S: Store, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    to: &Arrivals<Src::Acker>,
) -> crate::BoxError {
    loop {
        pipeline.outage.over().await;
        pipeline.health.resumed().await;
        match source.next().await {
            // The queues need no limit: the source hands out no more than may be unsettled.
            Ok((mut delivery, acker)) => {
                delivery.lane = delivery.lane.filter(|_| pipeline.settings.ordering != Ordering::None);
                let place = delivery.lane.map(|lane| pipeline.lanes.place(lane));
                to.push(delivery, acker, place);
            }
            Err(error) => return error,
        }
    }
}

/// Where deliveries go as they are received.
pub(crate) struct Arrivals<A> {
    /// What can run.
    pub(crate) lanes: Queue<Arrival<A>>,
    /// What has to wait for its turn.
    pub(crate) waiting: Queue<Waiting<A>>,
    /// What is redelivered must not wait for a lane that is free: a broker that limits its deliveries would drop it if this
    /// process ended often enough before that.
    pub(crate) redelivered: Queue<Arrival<A>>,
}

impl<A> Arrivals<A> {
    fn push(&self, delivery: Delivery, acker: A, place: Option<Place>) {
        warn_of_many(&delivery);
        match place {
            Some(place) if delivery.redelivered() || !place.is_first() => {
                self.waiting.push(Waiting::Turn(delivery, acker, place));
            }
            None if delivery.redelivered() => self.redelivered.push((delivery, acker, None)),
            place => self.lanes.push((delivery, acker, place)),
        }
    }
}

/// So many deliveries are too many. RabbitMQ 4 drops a message at the 21st return by default.
const MANY: u32 = 10;

fn warn_of_many(delivery: &Delivery) {
    if let Some(count) = delivery.delivery_count().filter(|count| *count >= MANY) {
        tracing::error!(
            source = delivery.source(),
            message_id = delivery.message_id(),
            position = delivery.position(),
            count,
            "the broker has delivered a message again and again without an answer, and drops it where it has a limit: see why \
             workers or connections end (memory, a deploy in a loop, a consumer timeout)"
        );
    }
}

async fn open<Src: Source>(source: &mut Src, terms: &Terms) {
    let longest = Duration::from_secs(5);
    let waits = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(100))
        .with_max_delay(longest)
        .with_jitter()
        .without_max_times();
    let mut waits = waits.build();
    loop {
        tokio::time::sleep(waits.next().unwrap_or(longest)).await;
        match source.open(terms.clone()).await {
            Ok(()) => return,
            Err(error) => tracing::warn!(source = source.name(), error, "the broker is still away"),
        }
    }
}
