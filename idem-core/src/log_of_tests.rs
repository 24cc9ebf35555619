//! The log and the traces of a unit test.

use std::io;
use std::sync::{Arc, LazyLock, Mutex};

use tracing::subscriber::NoSubscriber;
use tracing::{Dispatch, Subscriber};

/// While a process has had one subscriber, an event that is reached for the first time asks the subscriber of its own
/// thread alone, and the answer holds for all threads (`Rebuilder::JustOne` in tracing-core 0.1.36, `callsite.rs`).
static OTHERS: LazyLock<[Dispatch; 2]> = LazyLock::new(|| [(); 2].map(|()| Dispatch::new(NoSubscriber::new())));

/// Does the work while this subscriber sees its events, whatever the tests in other threads reached before.
pub(crate) fn with_subscriber<T>(subscriber: impl Subscriber + Send + Sync + 'static, work: impl FnOnce() -> T) -> T {
    LazyLock::force(&OTHERS);
    tracing::subscriber::with_default(subscriber, work)
}

/// The lines of a log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl io::Write for Log {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(text)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the text logged by `work`.
pub(crate) fn text(work: impl FnOnce()) -> String {
    let log = Log::default();
    let writer = log.clone();
    with_subscriber(tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish(), work);
    let text = log.0.lock().unwrap().clone();
    String::from_utf8(text).unwrap()
}

/// Does the work while its spans belong to traces, whose context is propagated as W3C's Trace Context.
#[cfg(feature = "opentelemetry")]
pub(crate) fn with_traces<T>(work: impl FnOnce() -> T) -> T {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::propagation::TraceContextPropagator;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use tracing_subscriber::layer::SubscriberExt;

    opentelemetry::global::set_text_map_propagator(TraceContextPropagator::new());
    let provider = SdkTracerProvider::builder().build();
    let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("idem"));
    with_subscriber(tracing_subscriber::registry().with(layer), work)
}
