//! Receiving: the supervisor of the source.

use backon::{BackoffBuilder, ExponentialBuilder};
use std::time::Duration;

use crate::pipeline::Pipeline;
use crate::worker::{Arrival, Queue, Waiting};
use crate::{Ordering, Source, Store, Terms};

/// Hands deliveries to the lanes until the worker drains. A source that fails is opened again, for ever: a lost broker
/// never ends a worker, it makes it unready.
pub(crate) async fn run<S: Store, Src: Source>(
    pipeline: &Pipeline<S>,
    source: &mut Src,
    terms: &Terms,
    (lanes, waiting): (&Queue<Arrival<Src::Acker>>, &Queue<Waiting<Src::Acker>>),
) {
    loop {
        let ended = tokio::select! {
            biased;
            () = pipeline.draining.cancelled() => return,
            error = forward(pipeline, source, lanes, waiting) => error,
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
    lanes: &Queue<Arrival<Src::Acker>>,
    waiting: &Queue<Waiting<Src::Acker>>,
) -> crate::BoxError {
    loop {
        pipeline.outage.over().await;
        pipeline.health.resumed().await;
        match source.next().await {
            // The queues need no limit: the source hands out no more than may be unsettled.
            Ok((mut delivery, acker)) => {
                delivery.lane = delivery.lane.filter(|_| pipeline.settings.ordering != Ordering::None);
                let place = delivery.lane.map(|lane| pipeline.lanes.place(lane));
                match place {
                    Some(place) if !place.is_first() => waiting.push(Waiting::Turn(delivery, acker, place)),
                    place => lanes.push((delivery, acker, place)),
                }
            }
            Err(error) => return error,
        }
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
