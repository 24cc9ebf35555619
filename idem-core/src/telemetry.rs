//! The names of all metrics and spans.

mod describe;
mod trace;

use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, counter, gauge, histogram};
use tracing::Span;
use tracing::field::Empty;
use tracing::level_filters::LevelFilter;

use crate::store::OutboxStats;
use crate::{Delivery, Outcome, Reason};

pub(crate) use describe::describe;
pub(crate) use trace::carry_on;

/// The metrics of one handler. They are created once, when the worker starts, so install the recorder before.
pub(crate) struct Meters {
    /// Each counter with the word of its outcome.
    outcomes: [(&'static str, Counter); 5],
    /// Tries of messages that end without an outcome.
    pub(crate) parked: Counter,
    /// Leases of a key-value store that ended while the handler ran.
    pub(crate) lost: Counter,
    /// From BEGIN to the response of the claim; of a batch once for each handler.
    pub(crate) claim: Histogram,
    /// The handler.
    pub(crate) handler: Histogram,
    /// The guard and COMMIT; of a batch once for each handler.
    pub(crate) commit: Histogram,
    /// From the time at which an inbox row was due to the start of its run.
    pub(crate) inbox_wait: Histogram,
    /// From the commit of a message to the delivery of its copy.
    pub(crate) duplicate_age: Histogram,
}

impl Meters {
    pub(crate) fn new(consumer: &str, handler: &str) -> Self {
        let labels = [("consumer", consumer.to_owned()), ("handler", handler.to_owned())];
        let outcome = |outcome: &'static str| {
            let labels =
                [("consumer", consumer.to_owned()), ("handler", handler.to_owned()), ("outcome", outcome.to_owned())];
            counter!("idem_deliveries_total", &labels)
        };
        Self {
            outcomes: ["processed", "duplicate", "conflict", "scheduled", "dead"].map(|word| (word, outcome(word))),
            parked: outcome("parked"),
            lost: counter!("idem_lost_leases_total", &labels),
            claim: histogram!("idem_claim_wait_seconds", &labels),
            handler: histogram!("idem_handler_seconds", &labels),
            commit: histogram!("idem_commit_seconds", &labels),
            inbox_wait: histogram!("idem_inbox_wait_seconds", &labels),
            duplicate_age: histogram!("idem_duplicate_age_seconds", &labels),
        }
    }

    pub(crate) fn count(&self, outcome: &Outcome) {
        let counted = self.outcomes.iter().filter(|(word, _)| *word == outcome.as_str());
        counted.for_each(|(_, counter)| counter.increment(1));
    }
}

/// The metrics of one worker that no handler labels.
pub(crate) struct ConsumerMetrics {
    pub(crate) in_flight: Gauge,
    pub(crate) scheduled: Gauge,
    pub(crate) dead: Gauge,
    pub(crate) oldest_due: Gauge,
    pub(crate) parked: Gauge,
    pub(crate) blocked: Gauge,
    pub(crate) blocked_oldest: Gauge,
    pub(crate) stale: Counter,
}

impl ConsumerMetrics {
    pub(crate) fn new(consumer: &str) -> Self {
        let labels = [("consumer", consumer.to_owned())];
        Self {
            in_flight: gauge!("idem_in_flight", &labels),
            scheduled: gauge!("idem_scheduled", &labels),
            dead: gauge!("idem_dead", &labels),
            oldest_due: gauge!("idem_oldest_due_seconds", &labels),
            parked: gauge!("idem_parked", &labels),
            blocked: gauge!("idem_blocked", &labels),
            blocked_oldest: gauge!("idem_blocked_oldest_seconds", &labels),
            stale: counter!("idem_stale_acks_total", &labels),
        }
    }
}

/// The metrics of one relay.
pub(crate) struct RelayMetrics {
    pub(crate) published: Counter,
    pub(crate) rejected: Counter,
    pub(crate) given_up: Counter,
    /// From the time at which a message was staged to its confirm.
    pub(crate) lag: Histogram,
    /// 1 while this relay publishes, 0 while it stands by.
    pub(crate) active: Gauge,
}

/// The number up to which messages of an outbox are counted for the gauges.
pub(crate) const OUTBOX_COUNTED: u64 = 100_000;

impl RelayMetrics {
    pub(crate) fn new(outbox: &str) -> Self {
        let labels = [("outbox", outbox.to_owned())];
        Self {
            published: counter!("idem_outbox_published_total", &labels),
            rejected: counter!("idem_outbox_rejected_total", &labels),
            given_up: counter!("idem_outbox_given_up_total", &labels),
            lag: histogram!("idem_outbox_lag_seconds", &labels),
            active: gauge!("idem_outbox_active", &labels),
        }
    }
}

/// Sets the gauges of the fill level of an outbox. Relays report it, and workers whose handlers stage: no relay may be alive.
pub(crate) fn outbox(outbox: &str, stats: &OutboxStats) {
    let labels = [("outbox", outbox.to_owned())];
    // A worker with a large backlog counts further, and a relay of the same process sets the same gauge.
    gauge!("idem_outbox_waiting", &labels).set(stats.waiting.min(OUTBOX_COUNTED) as f64);
    gauge!("idem_outbox_dead", &labels).set(stats.dead.min(OUTBOX_COUNTED) as f64);
    gauge!("idem_outbox_oldest_seconds", &labels).set(stats.oldest.unwrap_or_default().as_secs_f64());
}

/// Sets the gauge of the messages that wait at the broker in one queue, stream or topic.
pub(crate) fn lag(consumer: &str, source: &str, messages: u64) {
    let labels = [("consumer", consumer.to_owned()), ("source", source.to_owned())];
    gauge!("idem_source_lag", &labels).set(messages as f64);
}

/// Logs that a message is scheduled after a failure, or a dead letter, with the cause, its row and the command that shows it. A
/// message that was stored before its first run has no failure to log, and costs nothing here.
pub(crate) fn log_failure(
    id: Option<i64>,
    attempt: u32,
    state: Result<Duration, Reason>,
    error: &str,
    show: impl Fn() -> String,
) {
    match state {
        Ok(due) if attempt > 0 => tracing::warn!(attempt, ?due, error, id, show = %show(), "the message is scheduled"),
        Ok(_) => {}
        Err(reason) => tracing::error!(attempt, %reason, error, id, show = %show(), "the message is a dead letter"),
    }
}

/// Returns whether anyone may get the span of a delivery: a subscriber, or a logger of the crate `log` in place of one. A span
/// that nobody gets costs time as well: `tracing` collects its fields for the logger, and looks at it whenever it is polled.
pub(crate) fn is_traced() -> bool {
    LevelFilter::current() >= LevelFilter::INFO || log::max_level() >= log::LevelFilter::Info
}

/// The span of one delivery or one run from the inbox, named as in OpenTelemetry's messaging conventions.
pub(crate) fn span(system: &'static str, consumer: &str, delivery: &Delivery) -> Span {
    if !is_traced() {
        return Span::none();
    }
    let span = tracing::info_span!(
        // The guide names it as the target to filter by, so it stays when this file moves.
        target: "idem_core::telemetry",
        "process",
        otel.name = format_args!("process {}", delivery.source()),
        otel.kind = "consumer",
        messaging.system = system,
        messaging.operation.name = "process",
        messaging.operation.type = "process",
        messaging.destination.name = delivery.source(),
        messaging.consumer.group.name = consumer,
        messaging.message.id = delivery.message_id(),
        messaging.message.body.size = delivery.payload().len(),
        idem.handler = Empty,
        idem.key = Empty,
        idem.outcome = Empty,
    );
    #[cfg(feature = "opentelemetry")]
    trace::adopt(&span, delivery.headers());
    span
}

#[cfg(test)]
#[cfg(feature = "opentelemetry")]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider};
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;
    use crate::Headers;

    #[test]
    fn a_delivery_goes_on_with_the_trace_of_its_producer() {
        opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder().with_simple_exporter(exporter.clone()).build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("idem"));
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let headers = Headers::from_iter([("traceparent", format!("00-{trace}-b7ad6b7169203331-01"))]);
        crate::log_of_tests::with_subscriber(tracing_subscriber::registry().with(layer), || {
            drop(span("rabbitmq", "billing", &Delivery::new("orders", "{}").with_headers(headers)));
        });
        let spans = exporter.get_finished_spans().unwrap();
        assert_eq!(spans[0].span_context.trace_id().to_string(), trace);
        assert_eq!(spans[0].parent_span_id.to_string(), "b7ad6b7169203331");
        assert_eq!(spans[0].name, "process orders");
    }

    #[test]
    fn a_staged_message_goes_on_with_the_trace_of_its_handler_unless_it_has_one() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let parent = format!("00-{trace}-b7ad6b7169203331-01");
        let producer = Headers::from_iter([("traceparent", parent), ("tracestate", "vendor=1".to_owned())]);
        let delivery = Delivery::new("orders", "{}").with_headers(producer);
        let own = [("traceparent", "own"), ("tracestate", "own")].map(|header| Headers::from_iter([header]));
        let (mut headers, mut kept) = (Headers::new(), own.clone());
        crate::log_of_tests::with_traces(|| {
            span("rabbitmq", "billing", &delivery).in_scope(|| {
                carry_on(&mut headers);
                kept.iter_mut().for_each(carry_on);
            });
        });
        let carried = headers.get_str("traceparent").unwrap();
        assert!(carried.contains(trace) && !carried.contains("b7ad6b7169203331"), "{carried}");
        assert_eq!((headers.len(), headers.get_str("tracestate")), (2, Some("vendor=1")));
        assert_eq!(kept, own, "nothing of another trace is added");
    }
}
