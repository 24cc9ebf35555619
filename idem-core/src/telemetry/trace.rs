//! The trace of a message, which goes on from its producer to its handler, and to the consumers of what that stages.

#[cfg(feature = "opentelemetry")]
use tracing::Span;

use crate::Headers;

/// Makes the producer's trace context, which the headers carry (`traceparent` and `tracestate`, by default), the parent
/// of the span. It uses the global OpenTelemetry propagator; none is set by default.
#[cfg(feature = "opentelemetry")]
pub(super) fn adopt(span: &Span, headers: &Headers) {
    use tracing_opentelemetry::OpenTelemetrySpanExt;

    struct Producer<'a>(&'a Headers);
    impl opentelemetry::propagation::Extractor for Producer<'_> {
        fn get(&self, key: &str) -> Option<&str> {
            self.0.get_str(key)
        }
        fn keys(&self) -> Vec<&str> {
            self.0.iter().map(|(name, _)| name).collect()
        }
    }
    let parent = opentelemetry::global::get_text_map_propagator(|propagator| propagator.extract(&Producer(headers)));
    if let Err(error) = span.set_parent(parent) {
        tracing::trace!(%error, "the span has no parent");
    }
}

/// Adds the trace context of the current span to the headers of an outgoing message, by the global OpenTelemetry
/// propagator. If one of the propagator's headers is there, adds none: the parts of two contexts do not belong together.
/// Does nothing without the feature `opentelemetry`.
#[cfg_attr(not(feature = "opentelemetry"), allow(unused_variables, reason = "there is no trace context"))]
pub(crate) fn carry_on(headers: &mut Headers) {
    #[cfg(feature = "opentelemetry")]
    {
        use tracing_opentelemetry::OpenTelemetrySpanExt;

        let context = Span::current().context();
        opentelemetry::global::get_text_map_propagator(|propagator| {
            if propagator.fields().all(|field| headers.get(field).is_none()) {
                propagator.inject_context(&context, &mut Carrier(headers));
            }
        });
    }
}

/// The headers of an outgoing message.
#[cfg(feature = "opentelemetry")]
struct Carrier<'a>(&'a mut Headers);

#[cfg(feature = "opentelemetry")]
impl opentelemetry::propagation::Injector for Carrier<'_> {
    /// A propagator of several parts may set a header twice, and AMQP has one of a name. NATS has values of one line. A message
    /// that the broker cannot carry would be a dead letter because of its trace.
    fn set(&mut self, key: &str, value: String) {
        let fits = !value.is_empty() && !value.contains(char::is_control);
        if fits && self.0.get(key).is_none() {
            self.0.push(key, value);
        }
    }
}

#[cfg(test)]
#[cfg(feature = "opentelemetry")]
mod tests;
